//! The socket of a connection, and the relay between it and the driver.
//!
//! The driver opens its socket itself, reads from it only during a statement, and does not expose it. This store must
//! notice at once that the server ended a session, must set time-outs on the socket, and must duplicate it for a
//! lifeline. So the store opens the socket, and passes its bytes on to the driver through a port of this machine that
//! accepts one connection. TLS is between the driver and the server; the relay sees only encrypted bytes. Another
//! process of this machine that connects to the port before the driver does gets a connection to the server, which it
//! could also open itself, and the attempt of this store times out.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Shutdown};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tenure_kit::Liveness;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// One server of the options.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Host(String),
    Socket(PathBuf),
}

impl Target {
    /// Returns the host name that the server's certificate must be issued for.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Host(host) => host.rsplit_once(':').map_or(host, |(name, _)| name.trim_matches(['[', ']'])),
            Self::Socket(_) => "localhost",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An open socket to a server, and the task that relays its bytes. Dropping it closes the connection.
pub(crate) struct Relay {
    /// The port of this machine that the driver connects to.
    pub(crate) port: u16,
    socket: Arc<Socket>,
    task: AbortHandle,
}

impl Relay {
    /// Connects to a server. `liveness` learns of everything that the server sends, and of the end of the connection.
    pub(crate) async fn open(target: &Target, liveness: Arc<Liveness>) -> io::Result<Self> {
        match target {
            Target::Host(host) => {
                let server = TcpStream::connect(host.as_str()).await?;
                tune(&server);
                let socket = SockRef::from(&server).try_clone()?;
                Self::start(server, socket, liveness).await
            }
            #[cfg(unix)]
            Target::Socket(path) => {
                let server = tokio::net::UnixStream::connect(path).await?;
                let socket = SockRef::from(&server).try_clone()?;
                Self::start(server, socket, liveness).await
            }
            #[cfg(not(unix))]
            Target::Socket(_) => Err(io::Error::other("this system has no unix sockets; name a host")),
        }
    }

    async fn start(
        server: impl AsyncRead + AsyncWrite + Send + 'static,
        socket: Socket,
        liveness: Arc<Liveness>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (port, socket) = (listener.local_addr()?.port(), Arc::new(socket));
        let closing = Closing { liveness, socket: socket.clone() };
        let task = tokio::spawn(async move {
            if let Ok((driver, _)) = listener.accept().await {
                drop(listener);
                let _ = driver.set_nodelay(true);
                pump(server, driver, &closing.liveness).await;
            }
        });
        Ok(Self { port, socket, task: task.abort_handle() })
    }

    /// Closes the connection at once. The fate of a statement in flight is unknown.
    pub(crate) fn abort(&self) {
        self.task.abort();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    #[cfg(unix)]
    pub(crate) fn lifeline(&self) -> io::Result<tenure_core::Lifeline> {
        Ok(self.socket.try_clone()?.into())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Closes the connection when the relay ends, for whatever reason. A shutdown closes it even if another process has a
/// duplicate of the socket.
struct Closing {
    liveness: Arc<Liveness>,
    socket: Arc<Socket>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.liveness.close();
    }
}

/// Passes bytes on in both directions until one side ends.
async fn pump(server: impl AsyncRead + AsyncWrite, driver: TcpStream, liveness: &Liveness) {
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_driver, mut to_driver) = driver.into_split();
    let answers = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            liveness.heard();
            if to_driver.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = answers => {}
        _ = tokio::io::copy(&mut from_driver, &mut to_server) => {}
    }
}

/// Sets keepalives and time-outs, so that a peer that vanished is noticed within seconds instead of hours.
fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(3));
    #[cfg(not(windows))]
    let keepalive = keepalive.with_retries(3);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(20)));
}
