//! Opens a connection to the first member that answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tenure_core::{Fault, StoreError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::faults;
use crate::keys::Keys;
use crate::link::{Link, Wire};
use crate::login::Login;
use crate::options::EtcdOptions;
use crate::tls;
use crate::wire::{RangeRequest, under};

/// How to get a connection.
pub(crate) struct Dialer {
    options: EtcdOptions,
    /// What to encrypt with, if that was given rather than described.
    tls: Option<TlsConnector>,
    keys: Keys,
    /// Which member is tried first: another one each time.
    first: AtomicUsize,
}

/// A member that says nothing for so long has the next one tried beside it.
const STAGGER: Duration = Duration::from_millis(100);

/// A member that has failed is tried again after this, for as long as another one says nothing: it may have had no leader
/// for a moment, as when it is the leader that says nothing.
const AGAIN: Duration = Duration::from_millis(200);

/// How often HTTP/2 asks for a sign of life, as the last resort: members hang up on those who ask more often
/// than every 5 s. What is due sooner is asked for by calls (`Link::pulse`, and every heartbeat).
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);

impl Dialer {
    pub(crate) fn new(options: EtcdOptions, tls: Option<TlsConnector>, keys: Keys) -> Self {
        Self { options, tls, keys, first: AtomicUsize::new(rand::random::<u32>() as usize) }
    }

    pub(crate) async fn dial(&self) -> Result<Link, StoreError> {
        let tls = match &self.tls {
            Some(tls) => Some(tls.clone()),
            None => tls::connector(&self.options)?,
        };
        let members = &self.options.endpoints;
        let first = self.first.fetch_add(1, Ordering::Relaxed);
        let mut next = (0..members.len()).map(|number| &members[first.wrapping_add(number) % members.len()]).fuse();
        let mut tries = FuturesUnordered::new();
        let mut problem: Option<StoreError> = None;
        // How many have not been tried, and how many have not answered or failed.
        let (mut left, mut silent) = (members.len(), members.len());
        while silent > 0 {
            if let Some(member) = next.next() {
                left -= 1;
                tries.push(self.dial_later(member, tls.clone(), Duration::ZERO));
            }
            tokio::select! {
                Some((member, after, tried)) = tries.next() => match tried {
                    Ok(link) => return Ok(link),
                    Err(error) => {
                        silent -= usize::from(after.is_zero());
                        if error.fault() != Fault::Denied {
                            tries.push(self.dial_later(member, tls.clone(), AGAIN));
                        }
                        // What never will work is told rather than what just now does not.
                        if problem.as_ref().is_none_or(|known| known.fault() != Fault::Denied) {
                            problem = Some(error);
                        }
                    }
                },
                () = tokio::time::sleep(STAGGER), if left > 0 => {}
            }
        }
        Err(problem.unwrap_or_else(|| StoreError::denied("no member is named")))
    }

    /// Tries a member after a while, and tells which it was, and after how long.
    async fn dial_later<'m>(
        &self,
        member: &'m str,
        tls: Option<TlsConnector>,
        after: Duration,
    ) -> (&'m str, Duration, Result<Link, StoreError>) {
        tokio::time::sleep(after).await;
        (member, after, self.dial_in_time(member, tls).await)
    }

    async fn dial_in_time(&self, member: &str, tls: Option<TlsConnector>) -> Result<Link, StoreError> {
        let dialed = tokio::time::timeout(self.options.connect_within(), self.dial_one(member, tls)).await;
        // Nothing has happened; but it is told as a call is that was given up for the same reason, so that a
        // member which does not answer is one piece of news and not two.
        dialed.unwrap_or_else(|_| Err(StoreError::unknown(format!("{member} does not answer"))))
    }

    async fn dial_one(&self, member: &str, tls: Option<TlsConnector>) -> Result<Link, StoreError> {
        let socket = TcpStream::connect(member).await.map_err(|error| faults::unreachable(member, error))?;
        let _ = socket.set_nodelay(true);
        let is_tls = tls.is_some();
        let greeting = |status| faults::of_greeting(member, is_tls, status);
        let channel = match tls {
            None => channel(member, "http", socket).await,
            Some(tls) => {
                let host = member.rsplit_once(':').map_or(member, |(host, _)| host).trim_matches(['[', ']']);
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| StoreError::denied(format!("{host} is no name that a certificate can be for")))?;
                let stream = tls.connect(name, socket).await.map_err(|error| faults::no_tls(member, error))?;
                channel(member, "https", stream).await
            }
        };
        let channel = channel.map_err(|error| greeting(tonic::Status::from_error(error.into())))?;
        let login = match (&self.options.user, &self.options.password) {
            (Some(user), Some(password)) => Some(Login::new(user.clone(), password.clone())),
            _ => None,
        };
        let wire = Wire::new(channel, login);
        wire.log_in().await.map_err(greeting)?;
        let question = RangeRequest { count_only: true, ..under(&self.keys.attending()) };
        Link::greet(member.to_owned(), wire, question).await.map_err(greeting)
    }
}

/// A channel over this very stream, and no other: once it is broken, calls fail, and are not sent to whoever
/// is there by then.
async fn channel(
    member: &str,
    scheme: &str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Channel, tonic::transport::Error> {
    let origin = Uri::builder().scheme(scheme).authority(member).path_and_query("/").build();
    // The first part only names it; the stream is there already.
    let endpoint = Endpoint::from_static("http://etcd")
        .origin(origin.unwrap_or_default())
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    let stream = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let once = tower::service_fn(move |_: Uri| {
        let stream = stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        std::future::ready(stream.ok_or_else(|| std::io::Error::other("the connection is over")))
    });
    endpoint.connect_with_connector(once).await
}
