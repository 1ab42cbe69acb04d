//! The calls of Consul's HTTP API that the store uses. No call is retried here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use tenure_core::{ConfigError, StoreError};

use crate::errors;
use crate::keys::in_url;
use crate::options::ConsulOptions;
use crate::tls;
use crate::token::AclToken;

/// A client of one agent, or of several that are equivalent.
pub(crate) struct Client {
    http: reqwest::Client,
    agents: Vec<Agent>,
    /// The index of the agent that calls go to.
    current: AtomicUsize,
    token: AclToken,
    /// User and password for HTTP basic authentication.
    login: Option<(String, String)>,
    /// Datacenter, namespace and partition, as parameters of every call.
    common_parameters: String,
    pub(crate) namespace: Option<String>,
    pub(crate) prefix: String,
}

struct Agent {
    /// `http://host:port`
    url: String,
    /// The address that errors show.
    shown: String,
}

impl Client {
    /// # Errors
    /// Returns one line if a file that the options name is missing or not valid.
    pub(crate) fn new(options: &ConsulOptions) -> Result<Self, ConfigError> {
        Self::with_http(tls::client(options)?, options)
    }

    /// # Errors
    /// Returns one line if the options contradict each other.
    pub(crate) fn with_http(http: reqwest::Client, options: &ConsulOptions) -> Result<Self, ConfigError> {
        options.check()?;
        let agents = match &options.socket {
            Some(socket) => vec![Agent { url: "http://localhost".to_owned(), shown: socket.display().to_string() }],
            None => options.addresses.iter().map(|address| agent(address, options)).collect(),
        };
        let ConsulOptions { datacenter, namespace, partition, auth, .. } = options;
        let common_parameters = [("dc", datacenter), ("ns", namespace), ("partition", partition)];
        let common_parameters = common_parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        Ok(Self {
            http,
            agents,
            current: AtomicUsize::new(0),
            token: AclToken::new(options)?,
            login: auth.as_ref().map(|auth| {
                let (user, password) = auth.0.split_once(':').unwrap_or((&auth.0, ""));
                (user.to_owned(), password.to_owned())
            }),
            common_parameters: common_parameters.map(|(name, value)| format!("&{name}={}", in_url(value))).collect(),
            namespace: namespace.clone(),
            prefix: options.prefix.clone(),
        })
    }

    /// Whether every call names a namespace or a partition. Only Consul Enterprise has them.
    pub(crate) fn has_namespace_or_partition(&self) -> bool {
        self.namespace.is_some() || self.common_parameters.contains("&partition=")
    }

    /// Makes one call.
    pub(crate) async fn call(&self, request: HttpRequest) -> Result<Reply, StoreError> {
        let number = self.current.load(Ordering::Relaxed);
        let Agent { url, shown } = &self.agents[number];
        // If this call fails or is dropped, as a call that times out is, the next one goes to another agent.
        let call = AgentCall { client: self, number, answered: false };
        let accepted = request.accepted;
        let request = self.request(url, request).await;
        let outcome = async {
            let response = request.send().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok((status, headers, response.bytes().await?))
        };
        let (status, headers, body) = outcome.await.map_err(|error| errors::from_transport(shown, error))?;
        if status < 500 || Some(status) == accepted {
            call.answered();
        }
        if status == 200 || Some(status) == accepted {
            let index = headers.get("x-consul-index").and_then(|value| value.to_str().ok()?.parse().ok());
            return Ok(Reply { status, index, body: body.into(), shown: shown.clone() });
        }
        if status == 403 {
            self.token.reread();
        }
        Err(errors::from_status(shown, &self.prefix, status, &String::from_utf8_lossy(&body)))
    }

    async fn request(
        &self,
        agent: &str,
        HttpRequest { method, path, parameters, body, within, .. }: HttpRequest,
    ) -> RequestBuilder {
        let url = format!("{agent}{path}?{parameters}{}", self.common_parameters);
        let mut request = self.http.request(method, url);
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(token) = self.token.header().await {
            request = request.header("x-consul-token", token);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        match within {
            Some(within) => request.timeout(within),
            None => request,
        }
    }
}

fn agent(address: &str, options: &ConsulOptions) -> Agent {
    let scheme = if options.tls { "https" } else { "http" };
    let host = match (&options.tls_server_name, address.rsplit_once(':')) {
        // The certificate is for this name; the resolver in `tls` maps it to the real hosts.
        (Some(name), Some((_, port))) if options.tls => format!("{name}:{port}"),
        _ => address.to_owned(),
    };
    Agent { url: format!("{scheme}://{host}"), shown: address.to_owned() }
}

/// A call to one agent. If it gets no answer, the next call goes to another agent.
struct AgentCall<'a> {
    client: &'a Client,
    number: usize,
    answered: bool,
}

impl AgentCall<'_> {
    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for AgentCall<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let next = (self.number + 1) % self.client.agents.len();
            let _ = self.client.current.compare_exchange(self.number, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A request to the agent.
#[derive(Debug)]
pub(crate) struct HttpRequest {
    method: Method,
    path: String,
    /// The query string.
    parameters: String,
    body: Option<String>,
    accepted: Option<u16>,
    within: Option<Duration>,
}

impl HttpRequest {
    pub(crate) fn get(path: impl Into<String>, parameters: impl Into<String>) -> Self {
        let (path, parameters) = (path.into(), parameters.into());
        Self { method: Method::GET, path, parameters, body: None, accepted: None, within: None }
    }

    pub(crate) fn put(path: impl Into<String>, parameters: impl Into<String>) -> Self {
        Self { method: Method::PUT, ..Self::get(path, parameters) }
    }

    pub(crate) fn body(self, body: String) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Accepts this status as an answer as well; any other than 200 is an error.
    pub(crate) fn accept(self, status: u16) -> Self {
        Self { accepted: Some(status), ..self }
    }

    /// Sets a time limit for the call.
    pub(crate) fn within(self, span: Duration) -> Self {
        Self { within: Some(span), ..self }
    }
}

/// The answer of the agent.
pub(crate) struct Reply {
    pub(crate) status: u16,
    index: Option<u64>,
    body: Vec<u8>,
    /// The address of the agent that answered, as errors show it.
    pub(crate) shown: String,
}

impl Reply {
    /// Returns Consul's index of the state that the answer was read from, at least 1.
    pub(crate) fn index(&self) -> Result<u64, StoreError> {
        self.index.map(|index| index.max(1)).ok_or_else(|| errors::not_consul(&self.shown))
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_slice(&self.body).map_err(|error| errors::not_consul(&self.shown).because(error))
    }
}
