//! The way to the API server: a client of our own, made on the engine's thread when it is first needed.
//!
//! It is not the application's client, so renewals never wait behind what the application asks, nor
//! behind a limit that it has set itself. It does not try anything again: kube's own retries are left
//! out. (A request that could not be sent because its connection was closed meanwhile goes out on another
//! one; nothing has happened then, and a leader counts from before.)

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tenure_core::StoreError;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tower::{BoxError, ServiceBuilder};

use crate::faults;
use crate::options::Place;
use crate::plugin;

/// How the API server is reached, at most one way at a time.
pub(crate) struct Links {
    place: Place,
    state: Mutex<State>,
    /// Each call under way has a connection of its own, and a server does not like thousands.
    room: Semaphore,
}

/// How many calls may be under way at a time.
const ROOM: usize = 64;

#[derive(Default)]
struct State {
    current: Option<Arc<Link>>,
    /// Goes on when a caller gives up, and the next one waits for the same.
    making: Option<Making>,
}

/// A link that is being made. Dropping it ends that, and kills a credential plugin that runs for it.
struct Making {
    made: Shared<BoxFuture<'static, Result<Arc<Link>, StoreError>>>,
    task: JoinHandle<()>,
}

impl Drop for Making {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A way to the API server.
pub(crate) struct Link {
    client: Client,
    /// Where our seats are.
    pub(crate) namespace: String,
    /// Where the server is, for messages.
    pub(crate) server: String,
    /// The proxy on the way there, for messages.
    pub(crate) proxy: Option<String>,
    /// When anything was last heard on it.
    heard: Mutex<Instant>,
    /// Whether it was given up.
    over: watch::Sender<bool>,
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

impl Links {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, state: Mutex::default(), room: Semaphore::new(ROOM) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The way to the server. Nothing is connected by this.
    ///
    /// When the credential of a plugin is about to expire, another link is made while this one is still used.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, StoreError> {
        let made = {
            let mut state = self.state();
            state.take_made();
            let current = state.current.clone();
            if let Some(link) = current.as_ref().filter(|link| !link.is_due()) {
                return Ok(link.clone());
            }
            let making = state.making.get_or_insert_with(|| make(self.place.clone()));
            if let Some(link) = current.filter(|link| !link.has_expired()) {
                return Ok(link);
            }
            making.made.clone()
        };
        let made = made.await;
        self.state().take_made();
        made
    }

    /// Asks the server, on this link and no other.
    pub(crate) async fn ask(&self, link: &Arc<Link>, request: Request<Body>) -> Result<Answer, kube::Error> {
        // It is never closed, and whoever gives up waiting frees its place.
        let _place = self.room.acquire().await;
        let mut call = UnderWay { links: self, link, sent: Instant::now(), answered: false };
        let asked = async {
            let (parts, body) = link.client.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        let answer = asked.await;
        call.answered = true;
        if answer.is_ok() {
            link.hear();
        }
        answer
    }

    /// Begins to listen to an answer that goes on and on.
    pub(crate) async fn listen(&self, link: &Arc<Link>, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let response = link.client.send(request).await?;
        link.hear();
        Ok(response)
    }

    /// From now on, another link is to be made: this one is of no more use.
    pub(crate) fn give_up(&self, link: &Arc<Link>) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            state.current = None;
        }
        link.over.send_replace(true);
    }
}

impl State {
    /// Uses the link that was made, if one was.
    fn take_made(&mut self) {
        let Some(made) = self.making.as_ref().and_then(|making| making.made.clone().now_or_never()) else { return };
        self.making = None;
        match (made, &self.current) {
            (Ok(link), _) => self.current = Some(link),
            (Err(error), Some(link)) => {
                tracing::warn!(%error, "the credential expires soon and there is no other one yet");
                link.refresh_later();
            }
            // Told to those who wait for it.
            (Err(_), None) => {}
        }
    }
}

impl Link {
    fn is_due(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| *expiry.refresh() <= Instant::now())
    }

    fn has_expired(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| expiry.at <= Instant::now())
    }

    fn refresh_later(&self) {
        if let Some(expiry) = &self.expiry {
            *expiry.refresh() = Instant::now() + SHORTEST / 2;
        }
    }

    pub(crate) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Instant::now();
    }

    /// Resolves when it was given up.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

impl Expiry {
    fn after(lifetime: Duration) -> Self {
        let (now, lifetime) = (Instant::now(), lifetime.max(SHORTEST));
        let refresh = lifetime.saturating_sub(AHEAD).max(lifetime / 2);
        Self { at: now + lifetime, refresh: Mutex::new(now + refresh) }
    }

    fn refresh(&self) -> MutexGuard<'_, Instant> {
        self.refresh.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Who gives up sooner has not waited for the server, but had second thoughts.
const PATIENCE: Duration = Duration::from_millis(20);

/// A call that may be given up.
struct UnderWay<'a> {
    links: &'a Links,
    link: &'a Arc<Link>,
    sent: Instant,
    answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let silent = || *self.link.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) < self.sent;
        if !self.answered && self.sent.elapsed() >= PATIENCE && silent() {
            // Not a word since it was sent: what is kept open to that server may all be dead, and each
            // would cost another attempt.
            self.links.give_up(self.link);
        }
    }
}

/// Makes a link, in a task of its own.
fn make(place: Place) -> Making {
    let (done, made) = oneshot::channel();
    let task = tokio::spawn(async move {
        let _ = done.send(made_at(place).await);
    });
    let gone = |_| Err(StoreError::refused("the attempt to reach the API server was abandoned"));
    Making { made: made.map(move |made| made.unwrap_or_else(gone)).boxed().shared(), task }
}

async fn made_at(place: Place) -> Result<Arc<Link>, StoreError> {
    // Files are read, on a thread that may block.
    let configured = tokio::task::spawn_blocking(move || place.config());
    let (mut config, namespace) = configured.await.unwrap_or_else(|_| Err(faults::no_cryptography()))?;
    let server = host(&config.cluster_url);
    let proxy = config.proxy_url.as_ref().map(host);
    let expiry = plugin::resolve(&mut config).await?.map(Expiry::after);
    let tls = tokio::task::spawn_blocking(move || service(config));
    let service = tls.await.unwrap_or_else(|_| Err(faults::no_cryptography()))?;
    let client = service(&namespace);
    let heard = Mutex::new(Instant::now());
    Ok(Arc::new(Link { client, namespace, server, proxy, heard, over: watch::Sender::new(false), expiry }))
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
    let denied = |error: kube::Error| faults::of_configuration(&error);
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
