//! The topology: where the servers are, and how to log in to them.

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use tenure_core::ConfigError;
use tenure_kit::tls::{Certificates, Identity};

use crate::options::RedisOptions;

/// The servers of a store, with the settings of their connections.
pub(crate) enum Topology {
    One(ConnectionInfo),
    Sentinels { sentinels: Vec<ConnectionInfo>, name: String, server: ConnectionInfo },
    Cluster { seeds: Vec<ConnectionInfo> },
}

/// Returns the topology that the options describe. Reads the certificates.
pub(crate) fn topology(options: &RedisOptions) -> Result<Topology, ConfigError> {
    let login = |info: ConnectionInfo, user: Option<&String>, password: Option<&str>, database: i64| {
        let mut settings = info.redis_settings().clone().set_db(database);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        info.set_redis_settings(settings)
    };
    let password = options.password.as_ref().map(|secret| secret.0.as_str());
    let server = |info| login(info, options.user.as_ref(), password, options.database);
    if let Some(socket) = &options.socket {
        let info = ConnectionAddr::Unix(socket.clone()).into_connection_info().map_err(|error| error.to_string())?;
        return Ok(Topology::One(server(info)));
    }
    let infos = options.hosts.iter().map(|host| with_certificates(address(host, options.tls)?, options));
    let infos = infos.collect::<Result<Vec<_>, ConfigError>>()?;
    let one = || infos.first().cloned().ok_or_else(|| "no host is given; write redis://host:port".to_owned());
    Ok(match &options.sentinel {
        Some(name) => {
            let password = options.sentinel_password.as_ref().map(|secret| secret.0.as_str());
            let sentinels = infos.iter().map(|info| login(info.clone(), options.sentinel_user.as_ref(), password, 0));
            Topology::Sentinels { sentinels: sentinels.collect(), name: name.clone(), server: server(one()?) }
        }
        None if options.cluster => Topology::Cluster { seeds: infos.into_iter().map(server).collect() },
        None => Topology::One(server(one()?)),
    })
}

fn with_certificates(info: ConnectionInfo, options: &RedisOptions) -> Result<ConnectionInfo, ConfigError> {
    if !options.tls || (options.ca.is_none() && options.cert.is_none()) {
        return Ok(info);
    }
    let own = Identity::read(options.cert.as_deref(), options.key.as_deref())?;
    let client_tls =
        own.map(|own| redis::ClientTlsConfig { client_cert: own.certificates.pem, client_key: own.key_pem });
    let root_cert = options.ca.as_deref().map(Certificates::read).transpose()?.map(|roots| roots.pem);
    let certificates = TlsCertificates { client_tls, root_cert };
    let client =
        Client::build_with_tls(info, certificates).map_err(|error| format!("cannot use the certificates: {error}"))?;
    Ok(client.get_connection_info().clone())
}

/// Parses a `host:port`.
fn address(host: &str, tls: bool) -> Result<ConnectionInfo, ConfigError> {
    let (name, port) = host.rsplit_once(':').ok_or("a host must have the form host:port")?;
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.parse().map_err(|_| "a host must have the form host:port")?;
    let addr = match tls {
        true => ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(name, port),
    };
    addr.into_connection_info().map_err(|error| error.to_string().into())
}
