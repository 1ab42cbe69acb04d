//! The options of the store: the members of the cluster, the prefix, credentials and TLS.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
use tenure_kit::options::refuse;
use tenure_kit::tls::NEEDS_KEY;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded, with_port};

/// The port of members that name none.
const PORT: u16 = 2379;

/// Options of an [`EtcdStore`](crate::EtcdStore): where the cluster is, how to log in, and the prefix of all
/// keys.
///
/// They deserialize from a configuration file; unknown fields are an error. `Debug` and `Serialize` never show
/// the password.
///
/// ```
/// # use tenure_etcd::EtcdOptions;
/// let options = EtcdOptions::from_url("etcds://jobs:secret@one.example,two.example:2379/leaders?ca=/etc/ca.pem")?;
/// assert_eq!((options.endpoints.len(), options.prefix.as_str(), options.tls), (2, "leaders", true));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdOptions {
    /// The members of the cluster, each as `host:port`. At least one; a connection to any of them is enough.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, without a slash at its end. Elections with different prefixes are independent.
    pub prefix: String,
    /// The user to log in as. Needs a password; leave both out if a certificate identifies the user.
    pub user: Option<String>,
    /// The password of `user`. It is never serialized or printed.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// Whether to connect over TLS. The other TLS options require it.
    pub tls: bool,
    /// A PEM file with the certificates to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// A PEM file with the client certificate to present to the members. Needs `key`.
    pub cert: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate.
    pub key: Option<PathBuf>,
    /// The shortest lease that the members grant: one and a half times their election timeout, rounded up to whole
    /// seconds; `"2s"` by default.
    #[serde(with = "tenure_kit::options::duration")]
    pub min_lease: Duration,
    /// The time limit for connecting to one member; `"3s"` by default.
    #[serde(with = "tenure_kit::options::duration")]
    pub connect_timeout: Duration,
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
            min_lease: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(3),
        }
    }
}

/// The URL schemes that this store accepts: `etcd` for plain TCP, `etcds` for TLS.
pub const SCHEMES: &[&str] = &["etcd", "etcds"];

impl EtcdOptions {
    /// Parses a URL: `etcd://user:password@host:port,host:port/prefix`, or `etcds://…` over TLS, with the options
    /// `?ca=FILE`, `?cert=FILE&key=FILE`, `?min_lease=TIME` and `?connect_timeout=TIME`, such as `8s`.
    ///
    /// # Errors
    /// Returns one line that says what is wrong with the URL. It shows no part of the URL but the name of an
    /// option, so it never contains the password.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse(url, SCHEMES)?;
        let (user, password) = (url.user()?, url.password()?);
        let mut options = Self { tls: url.scheme == "etcds", user, password, ..Self::default() };
        url.hosts(PORT, &mut options.endpoints)?;
        if !url.path().is_empty() {
            options.prefix = decoded(url.path())?;
        }
        let mut given = url.options()?;
        given.take("ca", &mut options.ca)?.take("cert", &mut options.cert)?.take("key", &mut options.key)?;
        given.take("min_lease", &mut options.min_lease)?.take("connect_timeout", &mut options.connect_timeout)?;
        given.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Rejects options that contradict each other or would have no effect.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_member = |endpoint: &String| with_port(endpoint, PORT).as_ref() == Ok(endpoint);
        refuse(&[
            (self.endpoints.is_empty(), "no member is given: use etcd://host:port"),
            (!self.endpoints.iter().all(is_member), "each member must have the form host:port"),
            (self.prefix.is_empty() || self.prefix.ends_with('/'), "the prefix must not be empty or end with a slash"),
            (
                self.user.is_some() != self.password.is_some(),
                "user and password must be given together: etcd://user:password@host",
            ),
            (self.cert.is_some() != self.key.is_some(), NEEDS_KEY),
            (!self.tls && (self.ca.is_some() || self.cert.is_some()), "ca, cert and key need TLS: use etcds://"),
            (self.min_lease.is_zero(), "min_lease must not be 0; write it like 2s"),
            (self.connect_timeout.is_zero(), "connect_timeout must not be 0; write it like 3s"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_sets_members_prefix_and_options() {
        let options = |url: &str| EtcdOptions::from_url(url).unwrap();
        assert_eq!(options("etcd://"), EtcdOptions::default());
        assert_eq!(options("etcd:"), EtcdOptions::default());
        let all = options("etcds://jobs:p%40ss@a,b:1,[::1]/my/leaders?ca=/c&cert=/d&key=/e&min_lease=8s");
        assert_eq!(all.endpoints, ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!((all.prefix.as_str(), all.tls, all.min_lease), ("my/leaders", true, Duration::from_secs(8)));
        assert_eq!((all.user.as_deref(), all.password), (Some("jobs"), Some("p@ss".into())));
        assert_eq!((all.ca, all.cert, all.key), (Some("/c".into()), Some("/d".into()), Some("/e".into())));
    }

    #[test]
    fn url_errors_do_not_show_the_password() {
        for (url, expected) in [
            ("etcd://u:hunter2@host?colour=red", "unknown option \"colour\""),
            ("etcd://u:hunter2@host:port", "host:port"),
            ("etcd://u:hunter2@host/x/", "slash"),
            ("etcd://hunter2@host", "given together"),
            ("etcd://:hunter2@host", "given together"),
            ("etcd://u:hunter2@host?min_lease=0s", "must not be 0"),
            ("etcds://u:hunter2@host?cert=x", "needs its key"),
            ("etcd://u:hunter2@host?ca=x", "etcds://"),
            ("etcd://u:x?hunter2@host/y", "%3F"),
            ("etcd://u:x?hunter2", "host:port"),
        ] {
            let error = EtcdOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_deserialize_and_unknown_ones_are_rejected() {
        let options: EtcdOptions =
            toml::from_str("endpoints = ['a:1']\nuser = 'u'\npassword = 'hunter2'\nmin_lease = '5s'").unwrap();
        assert_eq!((options.endpoints[0].as_str(), options.min_lease), ("a:1", Duration::from_secs(5)));
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("password"), None, "the password was serialized");
        assert!(toml::from_str::<EtcdOptions>("endpionts = []").unwrap_err().to_string().contains("unknown field"));
    }
}
