//! Opens one connection to one host: a socket, encryption, a log-in.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, Socket, TcpKeepalive};
use tenure_core::StoreError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Empty};
use tokio::net::TcpStream;
use tokio_postgres::config::{Host, SslMode as DriverSslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ear::{Duplex, Ear, NOT_POSTGRES, Plain, ProcessId};
use crate::faults;
use crate::options::SslMode;

/// A host to try.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) place: Place,
    port: u16,
    /// What its certificate must be for.
    name: String,
    /// There is no other.
    pub(crate) alone: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Name(String),
    Address(IpAddr),
    Socket(PathBuf),
}

impl Target {
    /// The hosts of a configuration, in its order.
    pub(crate) fn all(config: &Config) -> Vec<Self> {
        let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let count = hosts.len().max(addresses.len());
        (0..count)
            .map(|number| {
                let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
                let name = match hosts.get(number) {
                    Some(Host::Tcp(name)) => name.clone(),
                    _ => addresses.get(number).map(ToString::to_string).unwrap_or_default(),
                };
                let place = match (addresses.get(number), hosts.get(number)) {
                    (Some(address), _) => Place::Address(*address),
                    #[cfg(unix)]
                    (None, Some(Host::Unix(folder))) => Place::Socket(folder.join(format!(".s.PGSQL.{port}"))),
                    _ => Place::Name(name.clone()),
                };
                Self { place, port, name, alone: count == 1 }
            })
            .collect()
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Place::Name(name) => write!(f, "{name}:{}", self.port),
            Place::Address(address) => write!(f, "{address}:{}", self.port),
            Place::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a connection is made of.
pub(crate) struct Dialed {
    pub(crate) client: Client,
    pub(crate) connection: Connection<Empty, Ear>,
    pub(crate) process: ProcessId,
    pub(crate) socket: Arc<Socket>,
}

/// Opens a connection. Nothing that matters has happened if it fails.
pub(crate) async fn dial(
    config: &Config,
    target: &Target,
    ssl: SslMode,
    tls: Option<&MakeRustlsConnect>,
) -> Result<Dialed, StoreError> {
    let (first, second) = match ssl {
        SslMode::Allow => (None, Some(tls)),
        SslMode::Prefer => (tls, Some(None)),
        SslMode::Disable | SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (tls, None),
    };
    let error = match (open(config, target, ssl, first).await, second) {
        (Err((error, true)), Some(second)) if !matches!(target.place, Place::Socket(_)) => {
            // As libpq does: whoever is barred one way may be let in the other.
            match open(config, target, ssl, second).await {
                Ok(dialed) => return Ok(dialed),
                Err(_) => error,
            }
        }
        (Ok(dialed), _) => return Ok(dialed),
        (Err((error, _)), _) => error,
    };
    Err(error)
}

/// Opens a connection, or tells why there is none, and whether the server bars us as we come.
async fn open(
    config: &Config,
    target: &Target,
    ssl: SslMode,
    tls: Option<&MakeRustlsConnect>,
) -> Result<Dialed, (StoreError, bool)> {
    let (stream, socket) = connect(config, target, ssl, tls).await.map_err(|error| (error, false))?;
    let (ear, process) = Ear::new(stream, socket.clone());
    let mut config = config.clone();
    // That is what the driver is told of a stream that needs nothing more done to it.
    config.ssl_mode(DriverSslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    let (client, connection) = config.connect_raw(tokio::io::empty(), ear).await.map_err(|error| {
        let barred = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        (faults::of_log_in(target, ssl, error), barred)
    })?;
    Ok(Dialed { client, connection, process, socket })
}

/// Connects, and returns the stream and a second handle on its socket.
async fn connect(
    config: &Config,
    target: &Target,
    ssl: SslMode,
    tls: Option<&MakeRustlsConnect>,
) -> Result<(Box<dyn Duplex>, Arc<Socket>), StoreError> {
    let unreachable = |error| faults::unreachable(target, error);
    let socket = match &target.place {
        #[cfg(unix)]
        Place::Socket(path) => {
            // libpq does not encrypt those, either.
            let socket = tokio::net::UnixStream::connect(path).await.map_err(unreachable)?;
            let handle = SockRef::from(&socket).try_clone().map_err(unreachable)?;
            return Ok((Box::new(Plain(socket)), Arc::new(handle)));
        }
        #[cfg(not(unix))]
        Place::Socket(_) => return Err(StoreError::denied("there are no such sockets on this system: name a host")),
        Place::Name(name) => TcpStream::connect((name.as_str(), target.port)).await,
        Place::Address(address) => TcpStream::connect((*address, target.port)).await,
    };
    let socket = tune(config, socket.map_err(unreachable)?);
    let handle = SockRef::from(&socket).try_clone().map_err(unreachable)?;
    Ok((encrypt(socket, target, ssl, tls).await?, Arc::new(handle)))
}

/// A peer that is gone without a word is noticed within seconds, not hours.
fn tune(config: &Config, socket: TcpStream) -> TcpStream {
    let _ = socket.set_nodelay(true);
    let reference = SockRef::from(&socket);
    if config.get_keepalives() {
        let two_hours = Duration::from_secs(2 * 60 * 60);
        let idle = Some(config.get_keepalives_idle()).filter(|idle| *idle != two_hours);
        let keepalive = TcpKeepalive::new()
            .with_time(idle.unwrap_or(Duration::from_secs(10)))
            .with_interval(config.get_keepalives_interval().unwrap_or(Duration::from_secs(3)));
        #[cfg(not(windows))]
        let keepalive = keepalive.with_retries(config.get_keepalives_retries().unwrap_or(3));
        let _ = reference.set_tcp_keepalive(&keepalive);
    }
    #[cfg(target_os = "linux")]
    let _ =
        reference.set_tcp_user_timeout(Some(config.get_tcp_user_timeout().copied().unwrap_or(Duration::from_secs(20))));
    socket
}

async fn encrypt(
    mut socket: TcpStream,
    target: &Target,
    ssl: SslMode,
    tls: Option<&MakeRustlsConnect>,
) -> Result<Box<dyn Duplex>, StoreError> {
    let Some(mut tls) = tls.cloned() else { return Ok(Box::new(Plain(socket))) };
    let answer = ask_for_tls(&mut socket).await.map_err(|error| faults::unreachable(target, error))?;
    match answer {
        b'S' => {
            let connect = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut tls, &target.name)
                .map_err(|_| StoreError::denied(format!("{} cannot be a name in a certificate", target.name)))?;
            let stream = connect.connect(socket).await.map_err(|error| faults::of_tls(target, ssl, error))?;
            Ok(Box::new(stream))
        }
        b'N' if ssl == SslMode::Prefer => Ok(Box::new(Plain(socket))),
        b'N' => Err(StoreError::denied(format!(
            "the server at {target} does not encrypt, but sslmode={} wants it: turn on ssl there, or use sslmode=prefer",
            ssl.as_str()
        ))),
        // Servers that are older than encryption answer with an error, and nobody runs those.
        _ => Err(StoreError::denied(format!("{target}: {NOT_POSTGRES}"))),
    }
}

/// Asks the server whether it encrypts: `S` or `N`.
async fn ask_for_tls(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<u8> {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    socket.write_all(&SSL_REQUEST).await?;
    let mut answer = [0];
    socket.read_exact(&mut answer).await?;
    Ok(answer[0])
}
