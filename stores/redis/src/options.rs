//! The options of the store: where the servers are, how to log in, and which keys to use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
use tenure_kit::options::refuse;
use tenure_kit::tls::NEEDS_KEY;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded};

/// Options of a [`RedisStore`](crate::RedisStore): where the servers are, how to log in, and which keys to use.
///
/// Parse them from a URL, read them from a configuration file (serde), or fill in the fields. `Debug` does not show
/// passwords.
///
/// ```
/// # use tenure_redis::RedisOptions;
/// let options = RedisOptions::from_url("redis://jobs:secret@localhost:6379/2?prefix=leaders")?;
/// assert_eq!((options.database, options.prefix.as_str()), (2, "leaders"));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisOptions {
    /// The `host:port` of the server, of all Sentinels, or of some nodes of the cluster.
    pub hosts: Vec<String>,
    /// The path of the server's unix socket. It replaces `hosts`.
    pub socket: Option<PathBuf>,
    /// The name of the master, if `hosts` are Sentinels. The store asks them for the master's address.
    pub sentinel: Option<String>,
    /// Whether `hosts` are nodes of a cluster. The store finds the other nodes itself.
    pub cluster: bool,
    /// The ACL user to log in as. It needs a password.
    pub user: Option<String>,
    /// The password of the user, or of the server. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// The user to log in to the Sentinels as, which have users of their own.
    pub sentinel_user: Option<String>,
    /// The password of the Sentinels. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub sentinel_password: Option<Secret>,
    /// The number of the database, 0 by default. A cluster has only database 0.
    pub database: i64,
    /// Whether to connect with TLS, to servers and Sentinels.
    pub tls: bool,
    /// A PEM file with the certificates to trust, instead of those that the system trusts.
    pub ca: Option<PathBuf>,
    /// A PEM file with the client's certificate. It needs `key`.
    pub cert: Option<PathBuf>,
    /// A PEM file with the private key of the client's certificate.
    pub key: Option<PathBuf>,
    /// The prefix of all keys and channels, `tenure` by default.
    pub prefix: String,
    /// The number of replicas that must confirm a write before it counts, 0 by default. If fewer confirm it in
    /// time, the outcome of the write is unknown, and no candidate leads by it.
    pub min_replicas: u32,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            hosts: vec!["127.0.0.1:6379".to_owned()],
            socket: None,
            sentinel: None,
            cluster: false,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            database: 0,
            tls: false,
            ca: None,
            cert: None,
            key: None,
            prefix: "tenure".to_owned(),
            min_replicas: 0,
        }
    }
}

/// The URL schemes that [`RedisOptions::from_url`] accepts.
pub const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "valkey",
    "valkeys",
];

impl RedisOptions {
    /// Parses a URL of one of the [`SCHEMES`]:
    ///
    /// | URL | |
    /// |---|---|
    /// | `redis://user:password@host:port/db` | one server |
    /// | `redis+unix:///path/to/socket?db=2` | one server, through its unix socket |
    /// | `redis+sentinel://user:password@host:port,host:port/master/db` | the master that the Sentinels name |
    /// | `redis+cluster://user:password@host:port,host:port` | a cluster |
    /// | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` | the same over TLS; `?ca=FILE`, `?cert=FILE&key=FILE` |
    ///
    /// All accept `?prefix=` and `?min_replicas=`. With Sentinels, `?sentinel_user=` and `?sentinel_password=`
    /// log in to the Sentinels.
    ///
    /// # Errors
    /// Returns one line if the URL is invalid or its options contradict each other. It never shows more of the
    /// URL than the name of an option.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse(url, SCHEMES)?;
        let mut options = Self {
            user: url.user()?,
            password: url.password()?,
            tls: url.scheme.starts_with("rediss") || url.scheme == "valkeys",
            cluster: url.scheme.ends_with("cluster"),
            ..Self::default()
        };
        if url.scheme == "redis+unix" {
            options.socket = Some(decoded(url.place)?.into());
            options.hosts.clear();
        } else {
            let port = if url.scheme.ends_with("sentinel") { 26379 } else { 6379 };
            options.hosts = vec![format!("127.0.0.1:{port}")];
            url.hosts(port, &mut options.hosts)?;
            options.path(url.scheme, url.path())?;
        }
        let (mut database, mut given) = (None::<u32>, url.options()?);
        given.take("prefix", &mut options.prefix)?.take("min_replicas", &mut options.min_replicas)?;
        given.take("db", &mut database)?;
        given.take("ca", &mut options.ca)?.take("cert", &mut options.cert)?.take("key", &mut options.key)?;
        given.take("sentinel_user", &mut options.sentinel_user)?;
        given.take("sentinel_password", &mut options.sentinel_password)?;
        given.finish()?;
        if database.is_some() && options.database != 0 {
            return Err("the database is given twice, in the path and as the option db; remove one of them".into());
        }
        options.database = database.map_or(options.database, Into::into);
        options.check()?;
        Ok(options)
    }

    /// Rejects options that contradict each other, and options that would have no effect.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        // To ignore them would send the password without encryption.
        let certificates = match (&self.socket, &self.sentinel, self.cluster) {
            (Some(_), ..) => "ca, cert and key need TLS, but a unix socket has no TLS; remove them",
            (_, Some(_), _) => "ca, cert and key need TLS; use rediss+sentinel://",
            (_, _, true) => "ca, cert and key need TLS; use rediss+cluster://",
            _ => "ca, cert and key need TLS; use rediss://",
        };
        let (one, sentinels) = (self.socket.as_ref(), self.sentinel.is_some());
        refuse(&[
            (self.hosts.is_empty() && one.is_none(), "no host is given; write redis://host:port"),
            (
                self.hosts.len() > 1 && !sentinels && !self.cluster,
                "several hosts must be Sentinels (redis+sentinel://) or nodes of a cluster (redis+cluster://)",
            ),
            (sentinels && self.cluster, "sentinel and cluster exclude each other; remove one of them"),
            (
                one.is_some() && (sentinels || self.cluster),
                "a unix socket reaches one server, not Sentinels or a cluster; give their hosts instead",
            ),
            (
                one.is_some_and(|socket| socket.as_os_str().is_empty()),
                "no socket is given; write redis+unix:///path/to/socket",
            ),
            (self.cluster && self.database != 0, "a cluster has only database 0; remove the database"),
            (self.database < 0, DATABASE),
            (
                self.user.is_some() && self.password.is_none(),
                "a user needs a password; write redis://user:password@host, or redis://:password@host without a user",
            ),
            (
                self.sentinel_user.is_some() && self.sentinel_password.is_none(),
                "sentinel_user needs sentinel_password; give both",
            ),
            (
                self.sentinel_password.is_some() && !sentinels,
                "sentinel_user and sentinel_password need Sentinels; use redis+sentinel://",
            ),
            (self.prefix.is_empty() || self.prefix.contains(['{', '}']), "prefix must not be empty or contain braces"),
            (self.cert.is_some() != self.key.is_some(), NEEDS_KEY),
            (self.tls && one.is_some(), "a unix socket has no TLS; remove tls"),
            (!self.tls && (self.ca.is_some() || self.cert.is_some()), certificates),
        ])
    }

    fn path(&mut self, scheme: &str, path: &str) -> Result<(), ConfigError> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        if scheme.ends_with("sentinel") {
            let name =
                parts.next().ok_or("the name of the master is missing; write redis+sentinel://host:port/NAME")?;
            self.sentinel = Some(decoded(name)?);
        }
        if let Some(database) = parts.next() {
            self.database = database.parse().map_err(|_| DATABASE)?;
        }
        match parts.next() {
            None => Ok(()),
            Some(_) => Err("the path of the URL has too many parts; write redis://host:port/2".into()),
        }
    }
}

const DATABASE: &str = "the database must be a number, 0 or higher; write redis://host:port/2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_servers_sentinels_clusters_and_sockets() {
        let options = |url: &str| RedisOptions::from_url(url).unwrap();
        let plain = options("redis://");
        assert_eq!(plain, RedisOptions::default());
        assert_eq!(options("redis:"), plain);
        let one = options("rediss://jobs:p%40ss@db.example:7000/3?prefix=a&min_replicas=1&ca=/etc/ca.pem");
        assert_eq!((one.hosts[0].as_str(), one.database, one.tls), ("db.example:7000", 3, true));
        assert_eq!((one.user.as_deref(), one.password), (Some("jobs"), Some("p@ss".into())));
        assert_eq!((one.prefix.as_str(), one.min_replicas, one.ca), ("a", 1, Some("/etc/ca.pem".into())));
        let sentinel = options("redis+sentinel://:pw@a,b:1/mymaster/2");
        assert_eq!(sentinel.hosts, ["a:26379", "b:1"]);
        assert_eq!((sentinel.sentinel.as_deref(), sentinel.database, sentinel.user), (Some("mymaster"), 2, None));
        assert!(options("redis+cluster://a,b").cluster);
        assert_eq!(options("redis://[::1]").hosts, ["[::1]:6379"]);
        assert_eq!(options("redis+unix:///run/redis.sock?db=1").socket, Some("/run/redis.sock".into()));
    }

    #[test]
    fn errors_about_urls_say_what_is_wrong_and_never_show_the_password() {
        for (url, expected) in [
            ("redis://u:hunter2@host/x", "database must be a number"),
            ("redis://u:hunter2@host/1/2", "too many parts"),
            ("redis://u:hunter2@a,b", "several hosts"),
            ("redis://u:hunter2@host?colour=red", "unknown option \"colour\""),
            ("redis://u:hunter2@host:port", "host:port"),
            ("redis+sentinel://u:hunter2@host", "name of the master"),
            ("redis+cluster://u:hunter2@host/3", "only database 0"),
            ("redis://u:hunter2@host?prefix={x}", "braces"),
            ("rediss://u:hunter2@host?cert=x", "needs its key"),
            ("redis://u:hunter2@host?ca=/etc/ca.pem", "use rediss://"),
            ("redis+sentinel://u:hunter2@host/m?cert=x&key=y", "use rediss+sentinel://"),
            ("redis+cluster://u:hunter2@host?ca=x", "use rediss+cluster://"),
            ("valkey://u:hunter2@host?ca=x", "use rediss://"),
            ("redis+unix:///run/redis.sock?ca=x", "no TLS"),
            ("redis+unix://u:hunter2@", "no socket"),
            ("redis://u:hunter2@host?sentinel_user=x&sentinel_password=y", "redis+sentinel://"),
            ("redis+cluster://u:hunter2@host?sentinel_password=hunter2", "redis+sentinel://"),
            ("redis://u:hunter2@host/1?db=2", "twice"),
            ("redis://u:hunter2@host/-1", "database must be a number"),
            ("redis://u:hunter2@host#3", "host:port"),
            // A password with an unescaped `?` looks like options.
            ("redis://u:x?hunter2@host", "%3F"),
            ("redis://u:x?hunter2", "host:port"),
            ("redis://hunter2@host", "a user needs a password"),
        ] {
            let error = RedisOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_are_read_from_configuration_and_unknown_ones_are_rejected() {
        let options: RedisOptions = toml::from_str("hosts = ['a:1']\npassword = 'hunter2'\nmin_replicas = 1").unwrap();
        assert_eq!((options.hosts[0].as_str(), options.min_replicas), ("a:1", 1));
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("password"), None, "the password was serialized");
        assert!(toml::from_str::<RedisOptions>("hots = []").unwrap_err().to_string().contains("unknown field"));
    }
}
