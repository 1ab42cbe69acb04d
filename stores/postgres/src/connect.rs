//! Opens one connection to one host: connects the socket, performs the TLS handshake, and logs in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use tenure_core::StoreError;
use tenure_kit::socket::{Address, Keepalive};
use tokio_postgres::config::{Host, SslMode as DriverSslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::errors;
use crate::options::SslMode;
use crate::socket::{CheckedSocket, First};

/// One host of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    /// The host name that its certificate must be issued for.
    name: String,
    /// Whether it is the only host.
    pub(crate) alone: bool,
}

impl Target {
    /// Returns the hosts of a configuration, in its order.
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
                let address = match (addresses.get(number).copied().or(name.parse().ok()), hosts.get(number)) {
                    (Some(address), _) => Address::Host(SocketAddr::new(address, port).to_string()),
                    #[cfg(unix)]
                    (None, Some(Host::Unix(folder))) => Address::Socket(folder.join(format!(".s.PGSQL.{port}"))),
                    _ => Address::Host(format!("{name}:{port}")),
                };
                Self { address, name, alone: count == 1 }
            })
            .collect()
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

/// The driver's half of a connection, which sends and receives while it is polled.
pub(crate) type DriverConnection =
    Connection<CheckedSocket, <MakeRustlsConnect as MakeTlsConnect<CheckedSocket>>::Stream>;

/// A connection after its log-in.
pub(crate) struct Opened {
    pub(crate) client: Client,
    pub(crate) connection: DriverConnection,
    pub(crate) socket: Arc<Socket>,
}

/// Connects and logs in. If this fails, nothing was written.
pub(crate) async fn log_in(
    config: &Config,
    target: &Target,
    ssl: SslMode,
    tls: &MakeRustlsConnect,
) -> Result<Opened, StoreError> {
    let (first, second) = match ssl {
        // As in libpq, unix sockets are not encrypted.
        _ if matches!(target.address, Address::Socket(_)) => (First::Plain, None),
        // As in libpq, a client that is rejected with encryption is tried without it, and the reverse.
        SslMode::Allow => (First::Plain, Some(First::MustEncrypt)),
        SslMode::Prefer => (First::MayEncrypt, Some(First::Plain)),
        SslMode::Disable => (First::Plain, None),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (First::MustEncrypt, None),
    };
    match (open(config, target, ssl, tls, first).await, second) {
        (Err((error, true)), Some(second)) => open(config, target, ssl, tls, second).await.map_err(|_| error),
        (opened, _) => opened.map_err(|(error, _)| error),
    }
}

/// Opens a connection. The error says whether the server rejected the user, so that a second attempt with or without
/// encryption makes sense.
async fn open(
    config: &Config,
    target: &Target,
    ssl: SslMode,
    tls: &MakeRustlsConnect,
    first: First,
) -> Result<Opened, (StoreError, bool)> {
    let connected = target.address.connect(&keepalive(config)).await;
    let (stream, socket) = connected.map_err(|error| (errors::unreachable(target, error), false))?;
    let (stream, mut config) = (CheckedSocket::new(stream, first, socket.clone()), config.clone());
    // With `Prefer`, the driver goes on without TLS if the server does not support it. `CheckedSocket` rejects that
    // where TLS is required.
    config.ssl_mode(if first == First::Plain { DriverSslMode::Disable } else { DriverSslMode::Prefer });
    config.ssl_negotiation(SslNegotiation::Postgres);
    let Ok(tls) = MakeTlsConnect::<CheckedSocket>::make_tls_connect(&mut tls.clone(), &target.name);
    let (client, connection) = config.connect_raw(stream, tls).await.map_err(|error| {
        let is_rejected = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        (errors::login_failed(target, ssl, error), is_rejected)
    })?;
    Ok(Opened { client, connection, socket })
}

/// Returns the keepalives of the configuration. It has those of the system by default, which are hours.
fn keepalive(config: &Config) -> Keepalive {
    let (standard, two_hours) = (Keepalive::default(), Duration::from_secs(2 * 60 * 60));
    let idle = Some(config.get_keepalives_idle()).filter(|idle| *idle != two_hours);
    Keepalive {
        idle: idle.or(standard.idle).filter(|_| config.get_keepalives()),
        interval: config.get_keepalives_interval().unwrap_or(standard.interval),
        retries: config.get_keepalives_retries().unwrap_or(standard.retries),
        user_timeout: config.get_tcp_user_timeout().copied().unwrap_or(standard.user_timeout),
    }
}
