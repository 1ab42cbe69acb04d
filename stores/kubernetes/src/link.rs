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
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tenure_core::StoreError;
use tokio::sync::{Semaphore, watch};
use tower::{BoxError, ServiceBuilder};

use crate::faults;
use crate::options::Place;

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

type Making = Shared<BoxFuture<'static, Result<Arc<Link>, StoreError>>>;

/// A way to the API server.
pub(crate) struct Link {
    client: Client,
    /// Where our seats are.
    pub(crate) namespace: String,
    /// Where the server is, for messages.
    pub(crate) server: String,
    /// When anything was last heard on it.
    heard: Mutex<Instant>,
    /// Whether it was given up.
    over: watch::Sender<bool>,
}

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
    pub(crate) async fn link(&self) -> Result<Arc<Link>, StoreError> {
        let making = {
            let mut state = self.state();
            if let Some(link) = &state.current {
                return Ok(link.clone());
            }
            state.making.get_or_insert_with(|| make(self.place.clone())).clone()
        };
        let made = making.clone().await;
        let mut state = self.state();
        if state.making.as_ref().is_some_and(|now| now.ptr_eq(&making)) {
            state.making = None;
            state.current = made.as_ref().ok().cloned();
        }
        made.map_err(|error| error.clone())
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

impl Link {
    pub(crate) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Instant::now();
    }

    /// Resolves when it was given up.
    pub(crate) async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
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

/// Makes a link on a thread that may block: files are read, and a program may be run that knows a token.
fn make(place: Place) -> Making {
    let made = tokio::task::spawn_blocking(move || {
        let (config, namespace) = place.config()?;
        let server = config.cluster_url.authority().map_or_else(String::new, |authority| authority.as_str().to_owned());
        // The password of a URL is not for messages.
        let server = server.rsplit_once('@').map_or(server.clone(), |(_, server)| server.to_owned());
        Ok((config, namespace, server))
    });
    async move {
        let made = made.await.unwrap_or_else(|_| Err(faults::no_cryptography()));
        let (config, namespace, server) = made?;
        let tls = tokio::task::spawn_blocking(move || service(config));
        let service = tls.await.unwrap_or_else(|_| Err(faults::no_cryptography()))?;
        let client = service(&namespace);
        let heard = Mutex::new(Instant::now());
        Ok(Arc::new(Link { client, namespace, server, heard, over: watch::Sender::new(false) }))
    }
    .boxed()
    .shared()
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
