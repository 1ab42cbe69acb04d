//! The few calls of Consul's HTTP interface that are needed, and nothing done twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder};
use tenure_core::StoreError;
use tokio::sync::Semaphore;

use crate::faults;
use crate::keys::in_url;
use crate::options::ConsulOptions;
use crate::tls;
use crate::token::AclToken;

/// How many calls may be under way at a time, besides heartbeats: each takes a connection, and agents
/// limit those of a client (200 by default).
const AT_ONCE: usize = 16;

/// An agent, or several that are as good as each other.
pub(crate) struct Client {
    http: reqwest::Client,
    agents: Vec<Agent>,
    /// The one that is asked now.
    current: AtomicUsize,
    headers: HeaderMap,
    token: AclToken,
    /// Datacenter, namespace and partition, for every call.
    everywhere: String,
    namespace: Option<String>,
    prefix: String,
    calls: Semaphore,
}

struct Agent {
    /// `http://host:port`
    url: String,
    /// As it is called in errors.
    shown: String,
}

impl Client {
    /// # Errors
    /// In one line, if a file that the options name cannot be read, or is not what it should be.
    pub(crate) fn new(options: &ConsulOptions) -> Result<Self, String> {
        Self::over(tls::client(options)?, options)
    }

    /// # Errors
    /// In one line, if the options cannot be.
    pub(crate) fn over(http: reqwest::Client, options: &ConsulOptions) -> Result<Self, String> {
        options.check()?;
        let agents = match &options.socket {
            Some(socket) => vec![Agent { url: "http://localhost".to_owned(), shown: socket.display().to_string() }],
            None => options.addresses.iter().map(|address| agent(address, options)).collect(),
        };
        let mut everywhere = String::new();
        for (name, value) in
            [("dc", &options.datacenter), ("ns", &options.namespace), ("partition", &options.partition)]
        {
            if let Some(value) = value {
                everywhere.push_str(&format!("&{name}={}", in_url(value)));
            }
        }
        Ok(Self {
            http,
            agents,
            current: AtomicUsize::new(0),
            headers: headers(options)?,
            token: AclToken::new(options)?,
            everywhere,
            namespace: options.namespace.clone(),
            prefix: options.prefix.clone(),
            calls: Semaphore::new(AT_ONCE),
        })
    }

    pub(crate) fn namespace(&self) -> Option<String> {
        self.namespace.clone()
    }

    /// Whether every call names a namespace or a partition, which not every server has.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.everywhere.contains("&ns=") || self.everywhere.contains("&partition=")
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whom an error is about.
    pub(crate) fn shown(&self) -> String {
        self.agents[self.current.load(Ordering::Relaxed)].shown.clone()
    }

    /// Makes one call.
    pub(crate) async fn call(&self, ask: Ask) -> Result<Answer, StoreError> {
        let _turn = self.calls.acquire().await.map_err(|_| StoreError::refused("the store is being dropped"))?;
        self.call_aside(ask).await
    }

    /// Makes one call that waits for no other: heartbeats, and those that wait for news.
    pub(crate) async fn call_aside(&self, ask: Ask) -> Result<Answer, StoreError> {
        let number = self.current.load(Ordering::Relaxed);
        let agent = &self.agents[number];
        // Also if this is dropped, as a call is that takes too long: the next one asks another agent.
        let turn = Turn { client: self, number, answered: false };
        let accepted = ask.also;
        let token = self.token.header().await;
        let outcome = async {
            let response = ask.request(self, agent, token).send().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok((status, headers, response.bytes().await?))
        }
        .await;
        let (status, headers, body) = outcome.map_err(|error| faults::of_transport(&agent.shown, error))?;
        if status == 200 || Some(status) == accepted {
            turn.answered();
            let index = headers.get("x-consul-index").and_then(|value| value.to_str().ok()?.parse().ok());
            return Ok(Answer { status, index, body: body.into(), shown: agent.shown.clone() });
        }
        if status < 500 {
            turn.answered();
        }
        if status == 403 {
            self.token.doubt();
        }
        Err(faults::of_status(&agent.shown, &self.prefix, status, &String::from_utf8_lossy(&body)))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let agents: Vec<_> = self.agents.iter().map(|agent| &agent.shown).collect();
        f.debug_struct("Client").field("agents", &agents).finish_non_exhaustive()
    }
}

fn agent(address: &str, options: &ConsulOptions) -> Agent {
    let scheme = if options.tls { "https" } else { "http" };
    let host = match (&options.tls_server_name, address.rsplit_once(':')) {
        // Its certificate is for this name, wherever it is found: see `tls`.
        (Some(name), Some((_, port))) if options.tls => format!("{name}:{port}"),
        _ => address.to_owned(),
    };
    Agent { url: format!("{scheme}://{host}"), shown: address.to_owned() }
}

fn headers(options: &ConsulOptions) -> Result<HeaderMap, String> {
    use base64::Engine as _;
    let mut headers = HeaderMap::new();
    if let Some(auth) = &options.auth {
        let basic = base64::engine::general_purpose::STANDARD.encode(&auth.0);
        let header = HeaderValue::from_str(&format!("Basic {basic}"));
        let mut header = header.map_err(|_| "the user and password are not plain text")?;
        header.set_sensitive(true);
        headers.insert(AUTHORIZATION, header);
    }
    Ok(headers)
}

/// A call to one agent. If it comes to no answer, the next call goes to another.
struct Turn<'a> {
    client: &'a Client,
    number: usize,
    answered: bool,
}

impl Turn<'_> {
    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let count = self.client.agents.len();
        if !self.answered && count > 1 {
            let next = (self.number + 1) % count;
            let _ = self.client.current.compare_exchange(self.number, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    parameters: String,
    body: Option<String>,
    /// A status that is an answer, too.
    also: Option<u16>,
    within: Option<Duration>,
}

impl Ask {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), parameters: String::new(), body: None, also: None, within: None }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// With parameters, as they stand in a URL.
    pub(crate) fn with(mut self, parameters: &str) -> Self {
        self.parameters = format!("{}&{parameters}", self.parameters);
        self
    }

    pub(crate) fn body(mut self, body: String) -> Self {
        self.body = Some(body);
        self
    }

    /// With a status that is an answer, too.
    pub(crate) fn also(mut self, status: u16) -> Self {
        self.also = Some(status);
        self
    }

    /// Given up after so long.
    pub(crate) fn within(mut self, span: Duration) -> Self {
        self.within = Some(span);
        self
    }

    fn request(self, client: &Client, agent: &Agent, token: Option<HeaderValue>) -> RequestBuilder {
        let parameters = format!("{}{}", self.parameters, client.everywhere);
        let url = format!("{}{}?{}", agent.url, self.path, parameters.trim_start_matches('&'));
        let mut request = client.http.request(self.method, url).headers(client.headers.clone());
        if let Some(token) = token {
            request = request.header("x-consul-token", token);
        }
        if let Some(body) = self.body {
            request = request.body(body);
        }
        if let Some(within) = self.within {
            request = request.timeout(within);
        }
        request
    }
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    index: Option<u64>,
    pub(crate) body: Vec<u8>,
    shown: String,
}

impl Answer {
    /// Consul's number for the state that was answered from, at least 1.
    pub(crate) fn index(&self) -> Result<u64, StoreError> {
        self.index.map(|index: u64| index.max(1)).ok_or_else(|| faults::not_consul(&self.shown))
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_slice(&self.body).map_err(|error| faults::not_consul(&self.shown).because(error))
    }
}
