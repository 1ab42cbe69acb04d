//! The options of the store: where the server is, how to log in, and which keys to use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
use tenure_kit::options::refuse;
use tenure_kit::socket::Address;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded};

/// Options of a [`MemcachedStore`](crate::MemcachedStore): where the server is, how to log in, and which keys to use.
///
/// Parse them from a URL, read them from a configuration file (serde), or fill in the fields. `Debug` does not show the
/// password.
///
/// ```
/// # use tenure_memcached::MemcachedOptions;
/// let options = MemcachedOptions::from_url("memcached://jobs:secret@localhost?prefix=leaders")?;
/// assert_eq!((options.hosts[0].as_str(), options.prefix.as_str()), ("localhost:11211", "leaders"));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemcachedOptions {
    /// The `host:port` of the server. It must be exactly one: see the README.
    pub hosts: Vec<String>,
    /// The path of the server's unix socket. It replaces `hosts`.
    pub socket: Option<PathBuf>,
    /// The user to log in as, if the server has an authentication file (`memcached -Y`). It needs a password.
    pub user: Option<String>,
    /// The password of the user. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// The prefix of all keys, `tenure` by default: at most 64 letters, digits, and `-_.:/`.
    pub prefix: String,
}

impl Default for MemcachedOptions {
    fn default() -> Self {
        let hosts = vec![format!("127.0.0.1:{PORT}")];
        Self { hosts, socket: None, user: None, password: None, prefix: "tenure".to_owned() }
    }
}

/// The URL schemes that [`MemcachedOptions::from_url`] accepts.
pub const SCHEMES: &[&str] = &["memcached", "memcached+unix"];

const PORT: u16 = 11211;

impl MemcachedOptions {
    /// Parses a URL of one of the [`SCHEMES`]: `memcached://user:password@host:port`, or
    /// `memcached+unix:///path/to/socket`. Both accept `?prefix=`.
    ///
    /// # Errors
    /// Returns one line if the URL is invalid. It never shows more of the URL than the name of an option.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse(url, SCHEMES)?;
        let mut options = Self { user: url.user()?, password: url.password()?, ..Self::default() };
        if url.scheme == "memcached+unix" {
            options.socket = Some(decoded(url.place)?.into());
            options.hosts.clear();
        } else {
            url.hosts(PORT, &mut options.hosts)?;
            refuse(&[(!url.path().is_empty(), "the URL of memcached has no path; write memcached://host:port")])?;
        }
        let mut given = url.options()?;
        given.take("prefix", &mut options.prefix)?;
        given.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Rejects options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        let has_space = |text: &str| text.contains(|c: char| c.is_whitespace() || c.is_control());
        let password = self.password.as_ref().map_or("", |password| password.0.as_str());
        refuse(&[
            (self.hosts.is_empty() && self.socket.is_none(), "no host is given; write memcached://host:port"),
            (
                self.hosts.len() > 1 && self.socket.is_none(),
                "several memcached servers share no data, so they cannot agree on a leader; name one of them",
            ),
            (
                self.socket.as_ref().is_some_and(|socket| socket.as_os_str().is_empty()),
                "no socket is given; write memcached+unix:///path/to/socket",
            ),
            (
                self.user.is_some() != self.password.is_some(),
                "user and password need each other; write memcached://user:password@host",
            ),
            (
                self.user.as_deref().is_some_and(has_space) || has_space(password),
                "user and password must not contain spaces: memcached separates them by one",
            ),
            (
                self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.chars().all(is_plain),
                "prefix must have 1 to 64 characters: ASCII letters, digits, or one of -_.:/",
            ),
        ])
    }

    /// Returns the address of the server. [`check`](Self::check) has found exactly one.
    pub(crate) fn address(&self) -> Address {
        match &self.socket {
            Some(socket) => Address::Socket(socket.clone()),
            None => Address::Host(self.hosts.first().cloned().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server_or_a_socket() {
        let options = |url: &str| MemcachedOptions::from_url(url).unwrap();
        assert_eq!(options("memcached://"), MemcachedOptions::default());
        assert_eq!(options("memcached:"), MemcachedOptions::default());
        let one = options("memcached://jobs:p%40ss@cache.example:7000?prefix=a");
        assert_eq!((one.hosts[0].as_str(), one.prefix.as_str()), ("cache.example:7000", "a"));
        assert_eq!((one.user.as_deref(), one.password), (Some("jobs"), Some("p@ss".into())));
        assert_eq!(options("memcached://[::1]").hosts, ["[::1]:11211"]);
        assert_eq!(options("memcached+unix:///run/m.sock").socket, Some("/run/m.sock".into()));
    }

    #[test]
    fn errors_about_urls_say_what_is_wrong_and_never_show_the_password() {
        for (url, expected) in [
            ("memcached://u:hunter2@a,b", "several memcached servers share no data"),
            ("memcached://u:hunter2@host/db", "has no path"),
            ("memcached://u:hunter2@host:port", "host:port"),
            ("memcached://u:hunter2@host?colour=red", "unknown option \"colour\""),
            ("memcached://u:hunter2@host?prefix=a%20b", "prefix must have"),
            ("memcached://u:hunter2@host?prefix=", "prefix must have"),
            ("memcached://hunter2@host", "user and password need each other"),
            ("memcached://u:hunter2%20@host", "must not contain spaces"),
            ("memcached+unix://u:hunter2@", "no socket"),
            ("memcached://u:x?hunter2@host", "%3F"),
        ] {
            let error = MemcachedOptions::from_url(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn options_are_read_from_configuration_and_unknown_ones_are_rejected() {
        let options: MemcachedOptions = toml::from_str("hosts = ['a:1']\nuser = 'u'\npassword = 'hunter2'").unwrap();
        assert_eq!(options.hosts, ["a:1"]);
        let socket: MemcachedOptions = toml::from_str("socket = '/run/m.sock'").unwrap();
        assert_eq!(socket.check().err().map(|error| error.to_string()), None, "a socket replaces the default host");
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("password"), None, "the password was serialized");
        assert!(toml::from_str::<MemcachedOptions>("hots = []").unwrap_err().to_string().contains("unknown field"));
    }
}
