//! A socket to a server, and the words for one that cannot be opened.

mod relay;

pub use relay::Relay;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tenure_core::StoreError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::cannot_connect;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host with its port, as `host:port`.
    Host(String),
    /// The path of a unix socket.
    Socket(PathBuf),
}

/// When a peer that has vanished is noticed: by default within seconds, instead of hours.
#[derive(Clone, Debug)]
pub struct Keepalive {
    /// The silence after which the system probes the peer; `None` if it never does.
    pub idle: Option<Duration>,
    /// The time between two probes.
    pub interval: Duration,
    /// How many probes are not answered before the connection is closed.
    pub retries: u32,
    /// How long sent data may stay without a confirmation before the connection is closed.
    pub user_timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        let [idle, interval, user_timeout] = [10, 3, 20].map(Duration::from_secs);
        Self { idle: Some(idle), interval, retries: 3, user_timeout }
    }
}

/// A stream of any kind: TCP or a unix socket.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

impl Address {
    /// Connects. Returns the stream and a second handle on its socket, to shut it down or to duplicate it.
    ///
    /// A socket that another process has a duplicate of stays open when it is closed here. Shut it down instead: then the
    /// server notices at once that this process gave up the connection.
    ///
    /// # Errors
    /// The error of the system; [`unreachable()`] describes it.
    pub async fn connect(&self, keepalive: &Keepalive) -> io::Result<(Box<dyn Duplex>, Arc<Socket>)> {
        let stream = match self {
            Self::Host(host) => TcpStream::connect(host.as_str()).await?,
            #[cfg(unix)]
            Self::Socket(path) => {
                let stream = tokio::net::UnixStream::connect(path).await?;
                let handle = SockRef::from(&stream).try_clone()?;
                return Ok((Box::new(stream), Arc::new(handle)));
            }
            #[cfg(not(unix))]
            Self::Socket(_) => return Err(io::Error::other("this system has no unix sockets; name a host")),
        };
        let _ = stream.set_nodelay(true);
        let socket = SockRef::from(&stream);
        if let Some(idle) = keepalive.idle {
            let probes = TcpKeepalive::new().with_time(idle).with_interval(keepalive.interval);
            #[cfg(not(windows))]
            let probes = probes.with_retries(keepalive.retries);
            let _ = socket.set_tcp_keepalive(&probes);
        }
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(keepalive.user_timeout));
        let handle = socket.try_clone()?;
        Ok((Box::new(stream), Arc::new(handle)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Describes a connection that could not be opened, or that ended before the log-in. `product` is the name of the server,
/// such as `MySQL`.
pub fn unreachable(address: &Address, product: &str, tls_advice: &str, error: io::Error) -> StoreError {
    match (error.kind(), address) {
        (io::ErrorKind::NotFound, Address::Socket(_)) => StoreError::refused(format!(
            "cannot connect to {address}: the socket does not exist; check the path, and that the server is running"
        )),
        _ if is_closed(&error) => StoreError::refused(format!(
            "cannot connect to {address}: it closed the connection at once; check that it is a {product} server"
        ))
        .because(error),
        _ => cannot_connect(address, "the server", tls_advice, &error),
    }
}

/// Returns whether the peer has closed the connection.
pub fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    [UnexpectedEof, ConnectionReset, ConnectionAborted, BrokenPipe, NotConnected].contains(&error.kind())
}

/// Describes a server that accepts a connection, or may have accepted it, but does not answer.
///
/// Nothing was written. Yet the fault is `Unknown`, as that of a call that times out: so a server that does not answer is
/// reported once, and not once for each kind of fault.
pub fn silent(address: &Address, product: &str) -> StoreError {
    StoreError::unknown(format!("{address} does not answer; check the network, and that it is a {product} server"))
}
