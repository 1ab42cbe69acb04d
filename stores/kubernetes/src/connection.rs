//! The way to the API server: a client of our own, made on the engine's thread when it is first needed.
//!
//! It is not the application's client, so renewals never wait behind what the application asks, nor
//! behind a limit that it has set itself. It does not try anything again: kube's own retries are left
//! out. (A request that could not be sent because its connection was closed meanwhile goes out on another
//! one; nothing has happened then, and a leader counts from before.)

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tenure_core::StoreError;
use tenure_kit::{Liveness, Patience, SharedTask, lock};
use tower::{BoxError, ServiceBuilder};

use crate::errors;
use crate::options::Place;
use crate::plugin;

/// How the API server is reached, at most one way at a time.
pub(crate) struct KubeConnections {
    place: Place,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<KubeConnection>>,
    /// Goes on when a caller gives up, and the next one waits for the same. Dropping it ends that, and kills a
    /// credential plugin that runs for it.
    making: Option<SharedTask<Arc<KubeConnection>>>,
}

/// A way to the API server.
pub(crate) struct KubeConnection {
    client: Client,
    /// Where our seats are.
    pub(crate) namespace: String,
    /// Where the server is, for messages.
    pub(crate) server: String,
    /// The proxy on the way there, for messages.
    pub(crate) proxy: Option<String>,
    /// Whether the server still answers on it. If it has not said a word while a call waited, what is kept open to
    /// that server may all be dead, and each connection would cost another attempt.
    liveness: Liveness,
    /// When the credential of a plugin expires, and from when on another one is fetched.
    expiry: Option<Expiry>,
}

struct Expiry {
    at: Instant,
    refresh: Mutex<Instant>,
}

/// Another credential is fetched so long before one expires, or halfway if it is good for less than twice this.
const AHEAD: Duration = Duration::from_secs(60);
/// A credential counts for at least this long, whatever it says: the clock of this host may be wrong, and the API
/// server judges anyway.
const SHORTEST: Duration = Duration::from_secs(10);

/// What a server has answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl KubeConnections {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, state: Mutex::default() }
    }

    /// The way to the server. Nothing is connected by this.
    ///
    /// When the credential of a plugin is about to expire, another connection is made while this one is still used.
    pub(crate) async fn connection(&self) -> Result<Arc<KubeConnection>, StoreError> {
        let made = {
            let mut state = lock(&self.state);
            state.take_made();
            let current = state.current.clone();
            if let Some(connection) = current.as_ref().filter(|connection| !connection.is_due()) {
                return Ok(connection.clone());
            }
            let making =
                state.making.get_or_insert_with(|| SharedTask::start_while_wanted(made_at(self.place.clone())));
            if let Some(connection) = current.filter(|connection| !connection.has_expired()) {
                return Ok(connection);
            }
            making.clone()
        };
        let made = made.wait(StoreError::refused("the attempt to reach the API server was abandoned")).await;
        lock(&self.state).take_made();
        made
    }

    /// Asks the server, on this connection and no other.
    pub(crate) async fn ask(
        &self,
        connection: &Arc<KubeConnection>,
        request: Request<Body>,
    ) -> Result<Answer, kube::Error> {
        let waiting = connection.liveness.waiting(Patience::default());
        let asked = async {
            let (parts, body) = connection.client.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        let answer = asked.await;
        if answer.is_ok() {
            waiting.answered()
        } else {
            waiting.failed()
        }
        answer
    }

    /// Begins to listen to an answer that goes on and on.
    pub(crate) async fn listen(
        &self,
        connection: &Arc<KubeConnection>,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let response = connection.client.send(request).await?;
        connection.hear();
        Ok(response)
    }

    /// From now on, another connection is to be made: this one is of no more use.
    pub(crate) fn give_up(&self, connection: &KubeConnection) {
        connection.liveness.close();
    }
}

impl State {
    /// Uses the connection that was made, if one was, and none that was given up or fell silent.
    fn take_made(&mut self) {
        if let Some(silent) = self.current.take_if(|connection| !connection.liveness.is_good()) {
            silent.liveness.close();
        }
        let Some(making) = self.making.take_if(|making| !making.is_running()) else { return };
        // Without a result, its runtime is gone.
        let Some(made) = making.result() else { return };
        match (made, &self.current) {
            (Ok(connection), _) => self.current = Some(connection),
            (Err(error), Some(connection)) => {
                tracing::warn!(%error, "the credential expires soon and there is no other one yet");
                connection.refresh_later();
            }
            // Told to those who wait for it.
            (Err(_), None) => {}
        }
    }
}

impl KubeConnection {
    fn is_due(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| *lock(&expiry.refresh) <= Instant::now())
    }

    fn has_expired(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| expiry.at <= Instant::now())
    }

    fn refresh_later(&self) {
        if let Some(expiry) = &self.expiry {
            *lock(&expiry.refresh) = Instant::now() + SHORTEST / 2;
        }
    }

    pub(crate) fn hear(&self) {
        self.liveness.heard();
    }

    /// Resolves when it was given up.
    pub(crate) async fn over(&self) {
        self.liveness.closed().await;
    }
}

impl Expiry {
    fn after(lifetime: Duration) -> Self {
        let (now, lifetime) = (Instant::now(), lifetime.max(SHORTEST));
        let refresh = lifetime.saturating_sub(AHEAD).max(lifetime / 2);
        Self { at: now + lifetime, refresh: Mutex::new(now + refresh) }
    }
}

async fn made_at(place: Place) -> Result<Arc<KubeConnection>, StoreError> {
    // Files are read, on a thread that may block.
    let configured = tokio::task::spawn_blocking(move || place.config());
    let (mut config, namespace) = configured.await.unwrap_or_else(|_| Err(errors::no_cryptography()))?;
    let server = host(&config.cluster_url);
    let proxy = config.proxy_url.as_ref().map(host);
    let expiry = plugin::resolve(&mut config).await?.map(Expiry::after);
    let tls = tokio::task::spawn_blocking(move || service(config));
    let service = tls.await.unwrap_or_else(|_| Err(errors::no_cryptography()))?;
    let client = service(&namespace);
    Ok(Arc::new(KubeConnection { client, namespace, server, proxy, liveness: Liveness::new(), expiry }))
}

/// Where a URL leads, for messages: without its password.
fn host(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

type MakeClient = Box<dyn FnOnce(&str) -> Client + Send>;

/// The layers between a request and the network; put together as the last step, on the engine's thread.
fn service(config: Config) -> Result<MakeClient, StoreError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let denied = |error: kube::Error| errors::of_configuration(&error);
    let (base, headers) = (config.base_uri_layer(), config.extra_headers_layer().map_err(denied)?);
    let auth = config.auth_layer().map_err(denied)?;
    macro_rules! client {
        ($connector:expr) => {{
            let connector = config.rustls_https_connector_with_connector($connector).map_err(denied)?;
            Ok(Box::new(move |namespace: &str| {
                let pool = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
                let service = ServiceBuilder::new()
                    .layer(base)
                    .option_layer(auth)
                    .layer(headers)
                    .map_err(BoxError::from)
                    .service(pool);
                Client::new(service, namespace)
            }))
        }};
    }
    match &config.proxy_url {
        None => client!(connector),
        Some(proxy) if proxy.scheme_str() == Some("http") => client!(Tunnel::new(proxy.clone(), connector)),
        Some(_) => Err(StoreError::denied("the kubeconfig or HTTPS_PROXY names a proxy that is not http://")),
    }
}
