//! The HTTP client: TLS, unix sockets and name resolution, and no retries.

use std::path::Path;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Identity, redirect, retry};
use tenure_core::ConfigError;
use tenure_kit::tls::{self, Certificates};

use crate::options::ConsulOptions;

/// # Errors
/// Returns one line if a file that the options name is missing or not valid.
pub(crate) fn client(options: &ConsulOptions) -> Result<reqwest::Client, ConfigError> {
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .http1_only()
        .connect_timeout(Duration::from_secs(3))
        .pool_max_idle_per_host(4)
        .tcp_keepalive(Duration::from_secs(10))
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
    #[cfg(unix)]
    if let Some(socket) = &options.socket {
        builder = builder.unix_socket(socket.clone());
    }
    if !options.tls {
        // No certificate is verified without TLS, so the system's certificates are not loaded.
        return builder
            .tls_certs_only([])
            .build()
            .map_err(|error| format!("cannot create an HTTP client: {error}").into());
    }
    let mut roots = Vec::new();
    for file in options.ca.iter().cloned().chain(folder(options.ca_path.as_deref())?) {
        for certificate in Certificates::read(&file)?.found {
            roots.push(Certificate::from_der(&certificate).map_err(|error| tls::cannot_configure(&error))?);
        }
    }
    if options.ca.is_some() || options.ca_path.is_some() {
        builder = builder.tls_certs_only(roots);
    }
    if let Some(own) = tls::Identity::read(options.cert.as_deref(), options.key.as_deref())? {
        let pem = [own.certificates.pem.as_slice(), b"\n", &own.key_pem].concat();
        builder = builder.identity(Identity::from_pem(&pem).map_err(|error| tls::cannot_configure(&error))?);
    }
    if !options.verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if options.tls_server_name.is_some() {
        let hosts = options.addresses.iter().filter_map(|address| address.rsplit_once(':'));
        let hosts = hosts.map(|(host, _)| host.trim_matches(['[', ']']).to_owned()).collect();
        builder = builder.dns_resolver(ConfiguredHosts(hosts));
    }
    builder.build().map_err(|error| tls::cannot_configure(&error))
}

/// Lists the files of a folder with certificates.
fn folder(path: Option<&Path>) -> Result<Vec<std::path::PathBuf>, ConfigError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
}

/// Resolves every name to the configured hosts. The host in all URLs is the name in the agents' certificate.
struct ConfiguredHosts(Vec<String>);

impl Resolve for ConfiguredHosts {
    fn resolve(&self, _: Name) -> Resolving {
        let hosts = self.0.clone();
        Box::pin(async move {
            let mut found = Vec::new();
            let mut last = None;
            for host in hosts {
                match tokio::net::lookup_host((host.as_str(), 0)).await {
                    Ok(addresses) => found.extend(addresses),
                    Err(error) => last = Some(error),
                }
            }
            match last {
                Some(error) if found.is_empty() => Err(error.into()),
                _ => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}
