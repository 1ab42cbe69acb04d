//! What the store is told: where Consul is, and how to keep the seats.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::Takeover;
pub use tenure_core::url::Secret;

use crate::{environment, url};

/// Where the store keeps its seats, and how it gets there.
///
/// ```
/// # use tenure_consul::ConsulOptions;
/// let options = ConsulOptions::from_url("consuls://:secret@consul.example:8501/leaders?datacenter=east")?;
/// assert_eq!((options.prefix.as_str(), options.datacenter.as_deref()), ("leaders", Some("east")));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsulOptions {
    /// `host:port` of an agent. If there are several, another is asked when one does not answer; all
    /// must belong to the same datacenter.
    pub addresses: Vec<String>,
    /// A unix socket, instead of `addresses`.
    pub socket: Option<PathBuf>,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// The ACL token. Left out when options are written.
    #[serde(skip_serializing)]
    pub token: Option<Secret>,
    /// A file with the ACL token, if there is no `token`. Read again while the store is used, so the token can be
    /// rotated.
    pub token_file: Option<PathBuf>,
    /// `user:password` for HTTP's basic authentication, as a proxy in front may want it. Left out, too.
    #[serde(skip_serializing)]
    pub auth: Option<Secret>,
    /// The datacenter; `None`: the agent's own.
    pub datacenter: Option<String>,
    /// The namespace (Consul Enterprise).
    pub namespace: Option<String>,
    /// The admin partition (Consul Enterprise).
    pub partition: Option<String>,
    /// Whether to use TLS.
    pub tls: bool,
    /// A file with the certificates to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// A folder with such files.
    pub ca_path: Option<PathBuf>,
    /// A file with the certificate to show to the agent.
    pub cert: Option<PathBuf>,
    /// A file with the key of that certificate.
    pub key: Option<PathBuf>,
    /// The name that the agent's certificate is for, where that is not the one it is found by.
    pub tls_server_name: Option<String>,
    /// Whether the agent's certificate is checked.
    pub verify: bool,
    /// How soon a seat is taken whose session has ended.
    pub takeover: TakeoverMode,
    /// The shortest lease that the servers keep, if `session_ttl_min` is set there: `"10s"`, if not.
    #[serde(with = "span")]
    pub min_lease: Duration,
    /// Health checks of the agent's node that end the session when they fail, such as `serfHealth`.
    /// None by default: one that flaps costs a term, though its leader is well.
    pub checks: Vec<String>,
}

impl Default for ConsulOptions {
    fn default() -> Self {
        Self {
            addresses: vec!["127.0.0.1:8500".to_owned()],
            socket: None,
            prefix: "tenure".to_owned(),
            token: None,
            token_file: None,
            auth: None,
            datacenter: None,
            namespace: None,
            partition: None,
            tls: false,
            ca: None,
            ca_path: None,
            cert: None,
            key: None,
            tls_server_name: None,
            verify: true,
            takeover: TakeoverMode::default(),
            min_lease: Duration::from_secs(10),
            checks: Vec::new(),
        }
    }
}

/// How soon a seat is taken whose session has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TakeoverMode {
    /// At once: the end of the session is taken for the end of its leader.
    #[default]
    Instant,
    /// A lease later. Consul's lock-delay keeps the seat from everybody until then (for a minute at
    /// the most), and candidates wait by themselves, too.
    Safe,
}

impl From<TakeoverMode> for Takeover {
    fn from(mode: TakeoverMode) -> Self {
        match mode {
            TakeoverMode::Instant => Self::Instant,
            TakeoverMode::Safe => Self::Safe,
        }
    }
}

/// The schemes of this store's URLs.
pub const SCHEMES: &[&str] = &["consul", "consuls", "consul+unix"];

impl ConsulOptions {
    /// From a URL. What it does not say is taken from the environment, as Consul's own command does, and
    /// otherwise from the defaults:
    ///
    /// | URL | |
    /// |---|---|
    /// | `consul:` | as `CONSUL_HTTP_ADDR` says, or the agent of this machine |
    /// | `consul://:token@host:8500/prefix` | this agent; several are separated by commas |
    /// | `consuls://host:8501/prefix` | over TLS; `?ca=FILE`, `?cert=FILE&key=FILE`, `?tls_server_name=NAME` |
    /// | `consul+unix:///path/to/socket?prefix=tenure` | an agent by its socket |
    ///
    /// # Errors
    /// In one line, which never shows more of the URL than the name of an option.
    pub fn from_url(url: &str) -> Result<Self, String> {
        url::parse(url, &|name| std::env::var(name).ok())
    }

    /// From the environment alone: `CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN`, `CONSUL_HTTP_TOKEN_FILE`,
    /// `CONSUL_HTTP_AUTH`, `CONSUL_HTTP_SSL`, `CONSUL_HTTP_SSL_VERIFY`, `CONSUL_CACERT`, `CONSUL_CAPATH`,
    /// `CONSUL_CLIENT_CERT`, `CONSUL_CLIENT_KEY`, `CONSUL_TLS_SERVER_NAME`, `CONSUL_NAMESPACE` and
    /// `CONSUL_PARTITION`.
    ///
    /// # Errors
    /// In one line, if one of them cannot be read.
    pub fn from_env() -> Result<Self, String> {
        environment::options(&|name| std::env::var(name).ok())
    }

    /// What cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let wrong = if self.addresses.is_empty() && self.socket.is_none() {
            "no agent is named: consul://host:8500"
        } else if self.prefix.is_empty() || self.prefix.starts_with('/') || self.prefix.ends_with('/') {
            "a prefix is not empty, and does not begin or end with a slash"
        } else if self.prefix.chars().any(char::is_control) {
            "a prefix has no control characters"
        } else if self.cert.is_some() != self.key.is_some() {
            "a certificate needs its key (?cert=FILE&key=FILE)"
        } else if self.min_lease < Duration::from_secs(1) {
            "min_lease is a second or more"
        } else if self.socket.is_some() && cfg!(not(unix)) {
            "there are no unix sockets on this system"
        } else if self.socket.is_some() && self.tls {
            "a socket is asked without TLS"
        } else {
            return Ok(());
        };
        Err(wrong.to_owned())
    }
}

/// Durations as people write them.
mod span {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&tenure_core::span::show(*span))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        tenure_core::span::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_configuration_and_unknown_ones_are_refused() {
        let text =
            "addresses = ['a:1']\ntoken = 'hunter2'\nmin_lease = '2s'\ntakeover = 'safe'\nchecks = ['serfHealth']";
        let options: ConsulOptions = toml::from_str(text).unwrap();
        assert_eq!((options.addresses[0].as_str(), options.min_lease.as_secs()), ("a:1", 2));
        assert_eq!((options.takeover, options.checks[0].as_str()), (TakeoverMode::Safe, "serfHealth"));
        assert!(!format!("{options:?}").contains("hunter2"));
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("token"), None, "a token was written");
        assert!(toml::from_str::<ConsulOptions>("adresses = []").unwrap_err().to_string().contains("unknown field"));
    }
}
