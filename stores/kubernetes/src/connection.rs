//! The connection to the API server: a client of the store's own, created on the engine's thread when it is first
//! needed.
//!
//! It is separate from the application's client. So renewals never wait behind calls of the application, or
//! behind a rate limit of its client. It retries nothing: kube's own retry layer is left out. (If a request could
//! not be sent because its pooled connection was closed meanwhile, the HTTP client sends it on another one. That
//! is safe: the first attempt had no effect, and a leader counts its lease from before it.)

use std::sync::Mutex;
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
use tenure_kit::{Connection, Liveness, Patience, Reconnect, lock};
use tower::{BoxError, ServiceBuilder};

use crate::errors;
use crate::options::ConfigSource;
use crate::plugin;

/// A client of the API server with one credential.
pub(crate) struct KubeConnection {
    client: Client,
    /// The namespace of the seats.
    pub(crate) namespace: String,
    /// The address of the server, for messages.
    pub(crate) server: String,
    /// The address of the proxy, for messages.
    pub(crate) proxy: Option<String>,
    /// Whether the server still answers. If it was silent while a call waited, all pooled connections to it may
    /// be dead, and trying them one by one would cost a call each.
    liveness: Liveness,
    /// When the credential of a plugin expires, and when to fetch the next one.
    expiry: Option<Expiry>,
}

struct Expiry {
    at: Instant,
    refresh: Mutex<Instant>,
}

/// How many connections without a call stay open. After many calls at once, for example at a start, the others are closed.
const IDLE: usize = 16;

/// The next credential is fetched this long before one expires, or halfway if it lasts for less than twice this.
const REFRESH_AHEAD: Duration = Duration::from_secs(60);
/// A credential is used for at least this long, whatever it says. The clock of this host may be wrong, and the
/// API server verifies the credential in any case.
const MIN_LIFETIME: Duration = Duration::from_secs(10);

/// An answer of the server.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Returns the connection to the API server, replaced when it fails or its credential expires. Opens nothing.
pub(crate) fn reconnect(source: ConfigSource) -> Reconnect<KubeConnection> {
    // A credential plugin has a time-out of its own, and must not be started again before that.
    Reconnect::new(move || connect(source.clone())).stale_after(Duration::MAX)
}

impl Connection for KubeConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    fn is_ageing(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| *lock(&expiry.refresh) <= Instant::now())
    }

    fn not_replaced(&self, error: &StoreError) {
        tracing::warn!(%error, "cannot get a new credential, and the current one expires soon");
        if let Some(expiry) = &self.expiry {
            *lock(&expiry.refresh) = Instant::now() + MIN_LIFETIME / 2;
        }
    }
}

impl KubeConnection {
    /// Makes a call.
    pub(crate) async fn call(&self, request: Request<Body>) -> Result<Reply, kube::Error> {
        let waiting = self.liveness.waiting(Patience::default());
        let asked = async {
            let (parts, body) = self.client.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            Ok(Reply { status: parts.status, headers: parts.headers, body })
        };
        let answer = asked.await;
        if answer.is_ok() {
            waiting.answered()
        } else {
            waiting.failed()
        }
        answer
    }

    /// Makes a call whose answer is a stream.
    pub(crate) async fn open_stream(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let response = self.client.send(request).await?;
        self.liveness.heard();
        Ok(response)
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| expiry.at <= Instant::now())
    }
}

impl Expiry {
    fn after(lifetime: Duration) -> Self {
        let (now, lifetime) = (Instant::now(), lifetime.max(MIN_LIFETIME));
        let refresh = lifetime.saturating_sub(REFRESH_AHEAD).max(lifetime / 2);
        Self { at: now + lifetime, refresh: Mutex::new(now + refresh) }
    }
}

async fn connect(source: ConfigSource) -> Result<KubeConnection, StoreError> {
    // On a thread that can block, because it reads files.
    let configured = tokio::task::spawn_blocking(move || source.config());
    let (mut config, namespace) = configured.await.unwrap_or_else(|_| Err(errors::no_cryptography()))?;
    let server = host(&config.cluster_url);
    let proxy = config.proxy_url.as_ref().map(host);
    let expiry = plugin::resolve(&mut config).await?.map(Expiry::after);
    let tls = tokio::task::spawn_blocking(move || service(config));
    let service = tls.await.unwrap_or_else(|_| Err(errors::no_cryptography()))?;
    let client = service(&namespace);
    Ok(KubeConnection { client, namespace, server, proxy, liveness: Liveness::new(), expiry })
}

/// Returns the host of a URL for messages, without user and password.
fn host(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

type MakeClient = Box<dyn FnOnce(&str) -> Client + Send>;

/// Builds the layers between a request and the network. The last step must run on the engine's thread.
fn service(config: Config) -> Result<MakeClient, StoreError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let denied = |error: kube::Error| errors::from_configuration(&error);
    let (base, headers) = (config.base_uri_layer(), config.extra_headers_layer().map_err(denied)?);
    let auth = config.auth_layer().map_err(denied)?;
    macro_rules! client {
        ($connector:expr) => {{
            let connector = config.rustls_https_connector_with_connector($connector).map_err(denied)?;
            Ok(Box::new(move |namespace: &str| {
                let mut pool = legacy::Client::builder(TokioExecutor::new());
                let pool = pool.pool_max_idle_per_host(IDLE).build::<_, Body>(connector);
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
        Some(_) => Err(StoreError::denied(
            "the proxy must be an http:// URL; check proxy-url in the kubeconfig, or HTTPS_PROXY",
        )),
    }
}
