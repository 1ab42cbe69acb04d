//! The few calls of Consul's HTTP interface that are needed, and nothing done twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use tenure_core::StoreError;

use crate::errors;
use crate::keys::in_url;
use crate::options::ConsulOptions;
use crate::tls;
use crate::token::AclToken;

/// An agent, or several that are as good as each other.
pub(crate) struct Client {
    http: reqwest::Client,
    agents: Vec<Agent>,
    /// The one that is asked now.
    current: AtomicUsize,
    token: AclToken,
    /// User and password for HTTP's basic authentication.
    login: Option<(String, String)>,
    /// Datacenter, namespace and partition, as parameters of every call.
    everywhere: String,
    pub(crate) namespace: Option<String>,
    pub(crate) prefix: String,
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
        let ConsulOptions { datacenter, namespace, partition, auth, .. } = options;
        let everywhere = [("dc", datacenter), ("ns", namespace), ("partition", partition)];
        let everywhere = everywhere.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        Ok(Self {
            http,
            agents,
            current: AtomicUsize::new(0),
            token: AclToken::new(options)?,
            login: auth.as_ref().map(|auth| {
                let (user, password) = auth.0.split_once(':').unwrap_or((&auth.0, ""));
                (user.to_owned(), password.to_owned())
            }),
            everywhere: everywhere.map(|(name, value)| format!("&{name}={}", in_url(value))).collect(),
            namespace: namespace.clone(),
            prefix: options.prefix.clone(),
        })
    }

    /// Whether every call names a namespace or a partition, which not every server has.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.namespace.is_some() || self.everywhere.contains("&partition=")
    }

    /// Makes one call.
    pub(crate) async fn call(&self, ask: Ask) -> Result<Answer, StoreError> {
        let number = self.current.load(Ordering::Relaxed);
        let Agent { url, shown } = &self.agents[number];
        // Also if this is dropped, as a call is that takes too long: the next one asks another agent.
        let turn = Turn { client: self, number, answered: false };
        let also = ask.also;
        let request = self.request(url, ask).await;
        let outcome = async {
            let response = request.send().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok((status, headers, response.bytes().await?))
        };
        let (status, headers, body) = outcome.await.map_err(|error| errors::of_transport(shown, error))?;
        if status < 500 || Some(status) == also {
            turn.answered();
        }
        if status == 200 || Some(status) == also {
            let index = headers.get("x-consul-index").and_then(|value| value.to_str().ok()?.parse().ok());
            return Ok(Answer { status, index, body: body.into(), shown: shown.clone() });
        }
        if status == 403 {
            self.token.doubt();
        }
        Err(errors::of_status(shown, &self.prefix, status, &String::from_utf8_lossy(&body)))
    }

    async fn request(&self, agent: &str, ask: Ask) -> RequestBuilder {
        let url = format!("{agent}{}?{}{}", ask.path, ask.parameters, self.everywhere);
        let mut request = self.http.request(ask.method, url);
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(token) = self.token.header().await {
            request = request.header("x-consul-token", token);
        }
        if let Some(body) = ask.body {
            request = request.body(body);
        }
        match ask.within {
            Some(within) => request.timeout(within),
            None => request,
        }
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
        if !self.answered {
            let next = (self.number + 1) % self.client.agents.len();
            let _ = self.client.current.compare_exchange(self.number, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// What is asked.
#[derive(Debug)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    /// As they stand in a URL.
    parameters: String,
    body: Option<String>,
    also: Option<u16>,
    within: Option<Duration>,
}

impl Ask {
    pub(crate) fn get(path: impl Into<String>, parameters: impl Into<String>) -> Self {
        let (path, parameters) = (path.into(), parameters.into());
        Self { method: Method::GET, path, parameters, body: None, also: None, within: None }
    }

    pub(crate) fn put(path: impl Into<String>, parameters: impl Into<String>) -> Self {
        Self { method: Method::PUT, ..Self::get(path, parameters) }
    }

    pub(crate) fn body(self, body: String) -> Self {
        Self { body: Some(body), ..self }
    }

    /// With a status that is an answer, too.
    pub(crate) fn also(self, status: u16) -> Self {
        Self { also: Some(status), ..self }
    }

    /// Given up after so long.
    pub(crate) fn within(self, span: Duration) -> Self {
        Self { within: Some(span), ..self }
    }
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    index: Option<u64>,
    body: Vec<u8>,
    /// The agent that has answered, as it is called in errors.
    pub(crate) shown: String,
}

impl Answer {
    /// Consul's number for the state that was answered from, at least 1.
    pub(crate) fn index(&self) -> Result<u64, StoreError> {
        self.index.map(|index| index.max(1)).ok_or_else(|| errors::not_consul(&self.shown))
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_slice(&self.body).map_err(|error| errors::not_consul(&self.shown).because(error))
    }
}
