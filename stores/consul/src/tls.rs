//! The connections: encrypted or not, by name or by socket, and without anything that tries again.

use std::path::Path;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Identity, redirect, retry};

use crate::options::ConsulOptions;

/// # Errors
/// In one line, if a file that the options name cannot be read, or is not what it should be.
pub(crate) fn client(options: &ConsulOptions) -> Result<reqwest::Client, String> {
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
        // Nobody's certificate is looked at: the system's need not be read.
        return builder.tls_certs_only([]).build().map_err(|error| format!("no HTTP client: {error}"));
    }
    let mut roots = Vec::new();
    for file in options.ca.iter().cloned().chain(folder(options.ca_path.as_deref())?) {
        let bundle = Certificate::from_pem_bundle(&read(&file)?).unwrap_or_default();
        if bundle.is_empty() {
            return Err(format!("{} has no certificate in it, or is not PEM", file.display()));
        }
        roots.extend(bundle);
    }
    if options.ca.is_some() || options.ca_path.is_some() {
        builder = builder.tls_certs_only(roots);
    }
    if let (Some(cert), Some(key)) = (&options.cert, &options.key) {
        let pem = [read(cert)?, b"\n".to_vec(), read(key)?].concat();
        let identity = Identity::from_pem(&pem)
            .map_err(|_| format!("{} and {} are no certificate and key in PEM", cert.display(), key.display()))?;
        builder = builder.identity(identity);
    }
    if !options.verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if let Some(name) = &options.tls_server_name {
        let hosts = options.addresses.iter().filter_map(|address| address.rsplit_once(':'));
        let hosts = hosts.map(|(host, _)| host.trim_matches(['[', ']']).to_owned()).collect();
        builder = builder.dns_resolver(Elsewhere { name: name.clone(), hosts });
    }
    builder.build().map_err(|error| format!("TLS cannot be set up: {error}"))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The files of a folder with certificates.
fn folder(path: Option<&Path>) -> Result<Vec<std::path::PathBuf>, String> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
}

/// Finds the name of a certificate at the hosts that were named instead.
struct Elsewhere {
    name: String,
    hosts: Vec<String>,
}

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        let asked = name.as_str().to_owned();
        let hosts = if asked == self.name { self.hosts.clone() } else { vec![asked] };
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
