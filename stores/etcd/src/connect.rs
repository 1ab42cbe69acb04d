//! Opens a connection to the first member that answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tenure_core::{ConfigError, StoreError};
use tenure_kit::first_of;
use tenure_kit::tls::{self, Identity};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::connection::EtcdConnection;
use crate::keys::Keys;
use crate::options::EtcdOptions;
use crate::wire::{RangeRequest, under};
use crate::{errors, lock};

/// Opens connections to the members of the cluster.
pub(crate) struct Connector {
    options: EtcdOptions,
    /// The TLS configuration that the user supplied; `None` if it follows from the options.
    tls: Option<TlsConnector>,
    /// The member to try first; another one each time.
    first: AtomicUsize,
}

/// If a member has not answered after this time, the next one is tried as well.
const HEAD_START: Duration = Duration::from_millis(100);

/// The interval of HTTP/2 pings, as the last resort: members close connections that ping more often than every 5
/// seconds. Calls detect a silent member sooner (`EtcdConnection::wait_for_silence`, and every heartbeat).
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);

impl Connector {
    pub(crate) fn new(options: EtcdOptions, tls: Option<ClientConfig>) -> Self {
        let tls = tls.map(tls_connector);
        Self { options, tls, first: AtomicUsize::new(rand::random::<u32>() as usize) }
    }

    pub(crate) async fn connect(self: Arc<Self>) -> Result<EtcdConnection, StoreError> {
        let tls = match &self.tls {
            Some(tls) => Some(tls.clone()),
            None => tls_from_options(&self.options)?,
        };
        let members = &self.options.endpoints;
        let first = self.first.fetch_add(1, Ordering::Relaxed);
        let members = (0..members.len()).map(|number| &members[first.wrapping_add(number) % members.len()]);
        first_of(members, HEAD_START, async |member| {
            let connected =
                tokio::time::timeout(self.options.connect_timeout, self.connect_to(member, tls.clone())).await;
            // The attempt had no effect, but a call that times out is `Unknown`. The same fault here makes a member
            // that does not answer one reported problem instead of two.
            connected.unwrap_or_else(|_| Err(StoreError::unknown(format!("{member} did not answer in time"))))
        })
        .await
    }

    async fn connect_to(&self, member: &str, tls: Option<TlsConnector>) -> Result<EtcdConnection, StoreError> {
        let socket = TcpStream::connect(member).await.map_err(|error| errors::unreachable(member, error))?;
        let _ = socket.set_nodelay(true);
        let channel = match tls {
            None => channel(member, "http", socket).await,
            Some(tls) => {
                let host = member.rsplit_once(':').map_or(member, |(host, _)| host).trim_matches(['[', ']']);
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| StoreError::denied(format!("{host} is not a valid TLS server name")))?;
                let stream = tls.connect(name, socket).await.map_err(|error| errors::no_tls(member, error))?;
                channel(member, "https", stream).await
            }
        };
        let channel = channel.map_err(|error| errors::from_first_call(member, Status::from_error(error.into())))?;
        let login = self.options.user.clone().zip(self.options.password.clone());
        let processes = Keys::new(&self.options.prefix).board(&tenure_core::Board::Processes);
        EtcdConnection::open(member, channel, login, RangeRequest { count_only: true, ..under(&processes) }).await
    }
}

/// Returns the TLS configuration that the options describe, or `None` for plain TCP.
fn tls_from_options(options: &EtcdOptions) -> Result<Option<TlsConnector>, ConfigError> {
    if !options.tls {
        return Ok(None);
    }
    let builder = tls::builder()?.with_root_certificates(tls::roots(options.ca.as_deref(), "?ca=FILE")?);
    let identity = Identity::read(options.cert.as_deref(), options.key.as_deref())?;
    Ok(Some(tls_connector(tls::finish(builder, identity)?)))
}

fn tls_connector(mut config: ClientConfig) -> TlsConnector {
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Opens a channel over this stream and no other. Once the stream is broken, calls fail; they never go to another
/// server that listens at the same address by then.
async fn channel(
    member: &str,
    scheme: &str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Channel, tonic::transport::Error> {
    let origin = Uri::builder().scheme(scheme).authority(member).path_and_query("/").build();
    // The URI is only a name, because the stream is already connected.
    let endpoint = Endpoint::from_static("http://etcd")
        .origin(origin.unwrap_or_default())
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    let stream = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let once = tower::service_fn(move |_: Uri| {
        let stream = lock(&stream).take();
        std::future::ready(stream.ok_or_else(|| std::io::Error::other("the connection is closed")))
    });
    endpoint.connect_with_connector(once).await
}
