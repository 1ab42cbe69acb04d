//! What the store is told: where the members are, and how to keep the seats.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_kit::settings::refuse;
use tenure_kit::tls::NEEDS_KEY;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded, with_port};

/// Where members listen unless told otherwise.
const PORT: u16 = 2379;

/// Where the store keeps its seats, and how it gets there.
///
/// ```
/// # use tenure_etcd::EtcdOptions;
/// let options = EtcdOptions::from_url("etcds://jobs:secret@one.example,two.example:2379/leaders?ca=/etc/ca.pem")?;
/// assert_eq!((options.endpoints.len(), options.prefix.as_str(), options.tls), (2, "leaders", true));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdOptions {
    /// `host:port` of the members.
    pub endpoints: Vec<String>,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// The user to log in as.
    pub user: Option<String>,
    /// The password. Left out when options are written.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// Whether to use TLS.
    pub tls: bool,
    /// A file with the certificates to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// A file with the certificate to show to the members.
    pub cert: Option<PathBuf>,
    /// A file with the key of that certificate.
    pub key: Option<PathBuf>,
    /// The shortest lease that the members keep, in seconds: three halves of their election time-out,
    /// rounded up.
    pub min_lease: u32,
    /// How many seconds a connection may take.
    pub connect_timeout: u32,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: vec!["127.0.0.1:2379".to_owned()],
            prefix: "tenure".to_owned(),
            user: None,
            password: None,
            tls: false,
            ca: None,
            cert: None,
            key: None,
            min_lease: 2,
            connect_timeout: 3,
        }
    }
}

/// The schemes of this store's URLs.
pub const SCHEMES: &[&str] = &["etcd", "etcds"];

impl EtcdOptions {
    /// From a URL: `etcd://user:password@host:port,host:port/prefix`, or `etcds://…` over TLS, with
    /// `?ca=FILE`, `?cert=FILE&key=FILE`, `?min_lease=` and `?connect_timeout=`.
    ///
    /// # Errors
    /// In one line, which never shows more of the URL than the name of an option.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let url = Url::parse(url, SCHEMES)?;
        let (user, password) = (url.user()?, url.password()?);
        let mut options = Self { tls: url.scheme == "etcds", user, password, ..Self::default() };
        url.hosts(PORT, &mut options.endpoints)?;
        if !url.path().is_empty() {
            options.prefix = decoded(url.path())?;
        }
        let (seconds, read) = ("a whole number of seconds", |text: &str| text.parse().ok());
        let mut given = url.options()?;
        given.take("ca", &mut options.ca)?.take("cert", &mut options.cert)?.take("key", &mut options.key)?;
        given.take_with("min_lease", seconds, &mut options.min_lease, read)?;
        given.take_with("connect_timeout", seconds, &mut options.connect_timeout, read)?;
        given.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Refuses what contradicts itself, and what would be ignored.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_member = |endpoint: &String| with_port(endpoint, PORT).as_ref() == Ok(endpoint);
        refuse(&[
            (self.endpoints.is_empty(), "no member is named: etcd://host:port"),
            (!self.endpoints.iter().all(is_member), "a member is written as host:port"),
            (
                self.prefix.is_empty() || self.prefix.ends_with('/'),
                "a prefix is not empty, and does not end with a slash",
            ),
            (
                self.user.is_some() != self.password.is_some(),
                "a user needs a password, and a password its user: etcd://user:password@host",
            ),
            (self.cert.is_some() != self.key.is_some(), NEEDS_KEY),
            (!self.tls && (self.ca.is_some() || self.cert.is_some()), "ca, cert and key are for TLS: use etcds://"),
            (self.min_lease == 0, "min_lease must be at least 1 second"),
            (self.connect_timeout == 0, "connect_timeout must be at least 1 second"),
        ])
    }

    pub(crate) fn connect_within(&self) -> Duration {
        Duration::from_secs(self.connect_timeout.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_members_and_a_prefix() {
        let options = |url: &str| EtcdOptions::from_url(url).unwrap();
        assert_eq!(options("etcd://"), EtcdOptions::default());
        assert_eq!(options("etcd:"), EtcdOptions::default());
        let all = options("etcds://jobs:p%40ss@a,b:1,[::1]/my/leaders?ca=/c&cert=/d&key=/e&min_lease=8");
        assert_eq!(all.endpoints, ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!((all.prefix.as_str(), all.tls, all.min_lease), ("my/leaders", true, 8));
        assert_eq!((all.user.as_deref(), all.password), (Some("jobs"), Some("p@ss".into())));
        assert_eq!((all.ca, all.cert, all.key), (Some("/c".into()), Some("/d".into()), Some("/e".into())));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_without_the_password() {
        for (url, told) in [
            ("etcd:x", "begins with etcd://"),
            ("http://u:hunter2@host", "begins with one of etcd://, etcds://"),
            ("etcd://u:hunter2@host?colour=red", "unknown option \"colour\""),
            ("etcd://u:hunter2%@host", "%25"),
            ("etcd://u:hunter2@host:port", "host:port"),
            ("etcd://u:hunter2@host/x/", "slash"),
            ("etcd://hunter2@host", "needs a password"),
            ("etcd://:hunter2@host", "needs a password"),
            ("etcd://u:hunter2@host?min_lease=many", "whole number"),
            ("etcd://u:hunter2@host?min_lease=1.5", "whole number"),
            ("etcd://u:hunter2@host?min_lease=0", "at least 1"),
            ("etcds://u:hunter2@host?cert=x", "needs its key"),
            ("etcd://u:hunter2@host?ca=x", "etcds://"),
            ("etcd://u:x?hunter2@host/y", "%3F"),
            ("etcd://u:x?hunter2&hunter2@host/y", "%3F"),
            ("etcd://u:x?hunter2", "host:port"),
        ] {
            let error = EtcdOptions::from_url(url).unwrap_err();
            assert!(error.contains(told) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_come_from_configuration_and_unknown_ones_are_refused() {
        let options: EtcdOptions =
            toml::from_str("endpoints = ['a:1']\nuser = 'u'\npassword = 'hunter2'\nmin_lease = 5").unwrap();
        assert_eq!((options.endpoints[0].as_str(), options.min_lease), ("a:1", 5));
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("password"), None, "a password was written");
        assert!(toml::from_str::<EtcdOptions>("endpionts = []").unwrap_err().to_string().contains("unknown field"));
    }
}
