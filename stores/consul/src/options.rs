//! The options of the store: the agents, the prefix, credentials and TLS.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{ConfigError, Takeover};
use tenure_kit::options::{Variables, refuse};
use tenure_kit::tls::NEEDS_KEY;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded, with_port};

/// Options of a [`ConsulStore`](crate::ConsulStore): where Consul is, how to log in, and the prefix of all keys.
///
/// They deserialize from a configuration file; unknown fields are an error. `Debug` and `Serialize` never show
/// the token or the password.
///
/// ```
/// # use tenure_consul::ConsulOptions;
/// let options = ConsulOptions::from_url("consuls://:secret@consul.example:8501/leaders?datacenter=east")?;
/// assert_eq!((options.prefix.as_str(), options.datacenter.as_deref()), ("leaders", Some("east")));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsulOptions {
    /// The agents, each as `host:port`. If one does not answer, the next call goes to another. All must belong to
    /// the same datacenter.
    pub addresses: Vec<String>,
    /// The path of an agent's unix socket, instead of `addresses`.
    pub socket: Option<PathBuf>,
    /// The prefix of all keys, without a slash at either end. Elections with different prefixes are independent.
    pub prefix: String,
    /// The ACL token. It is never serialized or printed.
    #[serde(skip_serializing)]
    pub token: Option<Secret>,
    /// A file with the ACL token, used if `token` is not set. It is read again while the store runs, so that the
    /// token can be rotated.
    pub token_file: Option<PathBuf>,
    /// `user:password` for HTTP basic authentication, for a proxy in front of Consul. It is never serialized or
    /// printed.
    #[serde(skip_serializing)]
    pub auth: Option<Secret>,
    /// The datacenter that keeps the seats; `None` for the agent's own.
    pub datacenter: Option<String>,
    /// The namespace of the keys and sessions. Only Consul Enterprise has namespaces.
    pub namespace: Option<String>,
    /// The admin partition of the keys and sessions. Only Consul Enterprise has partitions.
    pub partition: Option<String>,
    /// Whether to connect over TLS. The other TLS options require it.
    pub tls: bool,
    /// A PEM file with the certificates to trust, instead of the system's.
    pub ca: Option<PathBuf>,
    /// A folder of PEM files with certificates to trust, instead of the system's.
    pub ca_path: Option<PathBuf>,
    /// A PEM file with the client certificate to present to the agent. Needs `key`.
    pub cert: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate.
    pub key: Option<PathBuf>,
    /// The name in the agent's certificate, if it differs from the host in `addresses`.
    pub tls_server_name: Option<String>,
    /// Whether the agent's certificate is verified. If not, an attacker in between can read the token.
    pub verify: bool,
    /// How soon a candidate takes a seat whose session has ended. `Instant` treats the end of the session as the
    /// end of its leader. `Safe` waits for a lease: Consul's lock-delay protects the seat for a lease, but at
    /// most for a minute, and the candidates wait as well.
    #[serde(with = "tenure_core::word")]
    pub takeover: Takeover,
    /// The shortest lease that the servers accept, which is their `session_ttl_min`; `"10s"` by default.
    #[serde(with = "tenure_kit::options::duration")]
    pub min_lease: Duration,
    /// Health checks of the agent's node that end the session when they fail, such as `serfHealth`. None by
    /// default: a check that flaps ends a term although its leader is healthy.
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
            takeover: Takeover::Instant,
            min_lease: Duration::from_secs(10),
            checks: Vec::new(),
        }
    }
}

/// The URL schemes that this store accepts: `consul` for HTTP, `consuls` for HTTPS, `consul+unix` for a socket.
pub const SCHEMES: &[&str] = &["consul", "consuls", "consul+unix"];

impl ConsulOptions {
    /// Parses a URL. Values that the URL does not give come from the environment, as with Consul's own command,
    /// or else from the defaults.
    ///
    /// | URL | |
    /// |---|---|
    /// | `consul:` | the agent in `CONSUL_HTTP_ADDR`, or the agent of this machine |
    /// | `consul://:token@host:8500/prefix` | this agent; commas separate several |
    /// | `consuls://host:8501/prefix` | over TLS; `?ca=FILE`, `?cert=FILE&key=FILE`, `?tls_server_name=NAME` |
    /// | `consul+unix:///path/to/socket?prefix=tenure` | an agent at its unix socket |
    ///
    /// # Errors
    /// Returns one line that says what is wrong with the URL. It shows no part of the URL but the name of an
    /// option, so it never contains the token.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::parse(url, &ENVIRONMENT)
    }

    /// Reads options from the environment alone: `CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN`,
    /// `CONSUL_HTTP_TOKEN_FILE`, `CONSUL_HTTP_AUTH`, `CONSUL_HTTP_SSL`, `CONSUL_HTTP_SSL_VERIFY`,
    /// `CONSUL_CACERT`, `CONSUL_CAPATH`, `CONSUL_CLIENT_CERT`, `CONSUL_CLIENT_KEY`, `CONSUL_TLS_SERVER_NAME`,
    /// `CONSUL_NAMESPACE` and `CONSUL_PARTITION`.
    ///
    /// # Errors
    /// Returns one line if the value of a variable is not valid.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(&ENVIRONMENT)
    }

    fn parse(url: &str, variables: &Variables<'_>) -> Result<Self, ConfigError> {
        let url = Url::parse(url, SCHEMES)?;
        let mut options = Self::from_variables(variables)?;
        // The token can also be in the place of the user.
        let token = url.password()?.or(url.user()?.map(Secret));
        if url.scheme == "consul+unix" {
            options.use_socket(decoded(url.place)?);
        } else {
            let is_tls = url.scheme == "consuls";
            let mut addresses = Vec::new();
            url.hosts(port(is_tls), &mut addresses)?;
            options.tls |= is_tls;
            if !addresses.is_empty() {
                options.tls = is_tls;
                options.socket = None;
                options.addresses = addresses;
            }
            let prefix = url.path().trim_matches('/');
            if !prefix.is_empty() {
                options.prefix = decoded(prefix)?;
            }
        }
        let mut given = url.options()?;
        // A token of the URL also replaces the file of the environment, and the reverse.
        match (token.is_some() || given.has("token"), given.has("token_file")) {
            (true, true) => return Err(TWO_TOKENS.into()),
            (false, false) => {}
            (true, false) | (false, true) => (options.token, options.token_file) = (token, None),
        }
        // Consul's variables may be set for other agents, but the options in the URL are meant for this one.
        if !options.tls && TLS_OPTIONS.iter().any(|name| given.has(name)) {
            return Err(TLS_NEEDED.into());
        }
        given.take("prefix", &mut options.prefix)?;
        given.take("token", &mut options.token)?.take("token_file", &mut options.token_file)?;
        given.take("dc", &mut options.datacenter)?.take("datacenter", &mut options.datacenter)?;
        given.take("ns", &mut options.namespace)?.take("namespace", &mut options.namespace)?;
        given.take("partition", &mut options.partition)?;
        given.take("ca", &mut options.ca)?.take("ca_path", &mut options.ca_path)?;
        given.take("cert", &mut options.cert)?.take("key", &mut options.key)?;
        given.take("tls_server_name", &mut options.tls_server_name)?.take("verify", &mut options.verify)?;
        let modes = [("instant", Takeover::Instant), ("safe", Takeover::Safe)];
        given.choose("takeover", &mut options.takeover, &modes)?.take("min_lease", &mut options.min_lease)?;
        options.checks.extend(given.take_all("check"));
        given.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Reads the variables that Consul's own command and libraries use.
    fn from_variables(variables: &Variables<'_>) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        variables
            .take("CONSUL_HTTP_TOKEN", &mut options.token)?
            .take("CONSUL_HTTP_TOKEN_FILE", &mut options.token_file)?
            .take("CONSUL_HTTP_AUTH", &mut options.auth)?
            .take("CONSUL_NAMESPACE", &mut options.namespace)?
            .take("CONSUL_PARTITION", &mut options.partition)?
            .take("CONSUL_CACERT", &mut options.ca)?
            .take("CONSUL_CAPATH", &mut options.ca_path)?
            .take("CONSUL_CLIENT_CERT", &mut options.cert)?
            .take("CONSUL_CLIENT_KEY", &mut options.key)?
            .take("CONSUL_TLS_SERVER_NAME", &mut options.tls_server_name)?
            .take("CONSUL_HTTP_SSL", &mut options.tls)?
            .take("CONSUL_HTTP_SSL_VERIFY", &mut options.verify)?;
        let Some(address) = variables.get("CONSUL_HTTP_ADDR") else { return Ok(options) };
        let (scheme, rest) = address.split_once("://").unwrap_or(("", &address));
        match scheme {
            "unix" => options.use_socket(rest),
            "" | "http" | "https" | "tcp" => {
                options.tls |= scheme == "https";
                let agent = with_port(rest.trim_end_matches('/'), port(options.tls)).map_err(|_| ADDRESS)?;
                options.addresses = vec![agent];
            }
            _ => return Err(ADDRESS.into()),
        }
        Ok(options)
    }

    fn use_socket(&mut self, path: impl Into<PathBuf>) {
        self.socket = Some(path.into());
        self.addresses.clear();
        self.tls = false;
    }

    /// Rejects options that contradict each other or would have no effect.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let prefix = self.prefix.as_str();
        refuse(&[
            (self.addresses.is_empty() && self.socket.is_none(), "no agent is given: use consul://host:8500"),
            (
                prefix.is_empty() || prefix.starts_with('/') || prefix.ends_with('/'),
                "the prefix must not be empty, or begin or end with a slash",
            ),
            (prefix.chars().any(char::is_control), "the prefix must not contain control characters"),
            (self.cert.is_some() != self.key.is_some(), NEEDS_KEY),
            (self.min_lease < Duration::from_secs(1), "min_lease must be at least 1s"),
            (self.socket.is_some() && cfg!(not(unix)), "this system has no unix sockets: use consul://host:port"),
            (self.socket.is_some() && self.tls, "a unix socket cannot use TLS: use consuls://host:port"),
        ])
    }
}

/// The environment of this process.
const ENVIRONMENT: Variables<'static> = Variables(&|name| std::env::var(name).ok());

const TWO_TOKENS: &str = "the URL has a token and a token_file: give only one of them";

/// Options that have no effect without TLS.
const TLS_OPTIONS: [&str; 6] = ["ca", "ca_path", "cert", "key", "tls_server_name", "verify"];

const TLS_NEEDED: &str = "ca, ca_path, cert, key, tls_server_name and verify need TLS: use consuls://";

const ADDRESS: &str = "CONSUL_HTTP_ADDR must be host:port, http://host:port, https://host:port or unix:///path";

/// Returns the port of agents that name none.
fn port(is_tls: bool) -> u16 {
    if is_tls { 8501 } else { 8500 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_deserialize_and_unknown_ones_are_rejected() {
        let text =
            "addresses = ['a:1']\ntoken = 'hunter2'\nmin_lease = '2s'\ntakeover = 'safe'\nchecks = ['serfHealth']";
        let options: ConsulOptions = toml::from_str(text).unwrap();
        assert_eq!((options.addresses[0].as_str(), options.min_lease.as_secs()), ("a:1", 2));
        assert_eq!((options.takeover, options.checks[0].as_str()), (Takeover::Safe, "serfHealth"));
        assert!(!format!("{options:?}").contains("hunter2"));
        let written = toml::Value::try_from(&options).unwrap();
        assert_eq!(written.get("token"), None, "the token was serialized");
        assert!(toml::from_str::<ConsulOptions>("adresses = []").unwrap_err().to_string().contains("unknown field"));
    }

    fn given(variables: &[(&str, &str)]) -> Result<ConsulOptions, ConfigError> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        ConsulOptions::from_variables(&Variables(&find))
    }

    #[test]
    fn tls_options_without_tls_are_rejected() {
        let none = Variables(&|_| None);
        for option in TLS_OPTIONS {
            let url = format!("consul://:token@host?{option}=true");
            assert_eq!(ConsulOptions::parse(&url, &none).unwrap_err(), TLS_NEEDED.into());
        }
        assert!(ConsulOptions::parse("consuls://:token@host?ca=/ca.pem", &none).unwrap().tls);
        let variable = Variables(&|name| (name == "CONSUL_CACERT").then(|| "/ca.pem".to_owned()));
        assert!(
            !ConsulOptions::parse("consul://host", &variable).unwrap().tls,
            "the variable may be set for other agents"
        );
    }

    #[test]
    fn consuls_environment_variables_are_used() {
        assert_eq!(given(&[]).unwrap(), ConsulOptions::default());
        let options = given(&[
            ("CONSUL_HTTP_ADDR", "https://consul.example"),
            ("CONSUL_HTTP_TOKEN", "hunter2"),
            ("CONSUL_HTTP_SSL_VERIFY", "false"),
            ("CONSUL_CACERT", "/ca.pem"),
            ("CONSUL_CLIENT_CERT", "/c.pem"),
            ("CONSUL_CLIENT_KEY", "/k.pem"),
            ("CONSUL_TLS_SERVER_NAME", "server.dc1.consul"),
            ("CONSUL_NAMESPACE", "team"),
        ])
        .unwrap();
        assert_eq!((options.addresses[0].as_str(), options.tls, options.verify), ("consul.example:8501", true, false));
        assert_eq!((options.token, options.namespace.as_deref()), (Some("hunter2".into()), Some("team")));
        assert_eq!(options.tls_server_name.as_deref(), Some("server.dc1.consul"));
        let socket = given(&[("CONSUL_HTTP_ADDR", "unix:///run/consul.sock")]).unwrap();
        assert_eq!((socket.socket, socket.addresses.len()), (Some("/run/consul.sock".into()), 0));
        assert_eq!(given(&[("CONSUL_HTTP_ADDR", "10.0.0.1:80")]).unwrap().addresses, ["10.0.0.1:80"]);
        assert!(
            given(&[("CONSUL_HTTP_SSL", "yes please")])
                .unwrap_err()
                .to_string()
                .contains("CONSUL_HTTP_SSL must be true or false")
        );
        assert!(
            given(&[("CONSUL_HTTP_ADDR", "gopher://x")]).unwrap_err().to_string().contains("CONSUL_HTTP_ADDR must be")
        );
    }

    #[test]
    fn a_url_overrides_the_environment() {
        let find = |name: &str| match name {
            "CONSUL_HTTP_ADDR" => Some("https://elsewhere:1".to_owned()),
            "CONSUL_HTTP_TOKEN" => Some("from-outside".to_owned()),
            "CONSUL_NAMESPACE" => Some("team".to_owned()),
            _ => None,
        };
        let alone = ConsulOptions::parse("consul:", &Variables(&find)).unwrap();
        assert_eq!((alone.addresses[0].as_str(), alone.tls), ("elsewhere:1", true));
        let named = ConsulOptions::parse("consul://:mine@here/p?namespace=other", &Variables(&find)).unwrap();
        assert_eq!((named.addresses[0].as_str(), named.tls, named.prefix.as_str()), ("here:8500", false, "p"));
        assert_eq!((named.token, named.namespace.as_deref()), (Some("mine".into()), Some("other")));
    }

    #[test]
    fn a_url_overrides_the_token_of_the_environment_however_each_gives_it() {
        let (inner, file) = (Some("from-outside".to_owned()), Some("/outside".to_owned()));
        for (variable, value) in [("CONSUL_HTTP_TOKEN", inner), ("CONSUL_HTTP_TOKEN_FILE", file)] {
            let find = |name: &str| value.clone().filter(|_| name == variable);
            let parsed = |url: &str| {
                let options = ConsulOptions::parse(url, &Variables(&find)).unwrap();
                (options.token, options.token_file)
            };
            for url in ["consul://:mine@here", "consul://mine@here", "consul://here?token=mine"] {
                assert_eq!(parsed(url), (Some("mine".into()), None), "{variable} {url}");
            }
            assert_eq!(parsed("consul://here?token_file=/mine"), (None, Some("/mine".into())), "{variable}");
        }
        for url in ["consul://:mine@here?token_file=/mine", "consul://here?token=mine&token_file=/mine"] {
            assert_eq!(options(url).unwrap_err(), TWO_TOKENS.into());
        }
    }

    fn options(url: &str) -> Result<ConsulOptions, ConfigError> {
        ConsulOptions::parse(url, &Variables(&|_| None))
    }

    #[test]
    fn a_url_sets_agents_or_a_socket_and_options() {
        for short in ["consul:", "consul://", "consul:///"] {
            assert_eq!(options(short).unwrap(), ConsulOptions::default(), "{short}");
        }
        let one =
            options("consuls://:t%40ken@db.example:1/a/b?datacenter=east&min_lease=2s&takeover=safe&check=serfHealth");
        let one = one.unwrap();
        assert_eq!((one.addresses[0].as_str(), one.tls, one.prefix.as_str()), ("db.example:1", true, "a/b"));
        assert_eq!((one.token, one.datacenter.as_deref()), (Some("t@ken".into()), Some("east")));
        assert_eq!((one.min_lease.as_secs(), one.takeover), (2, Takeover::Safe));
        assert_eq!(options("consul://a,b:1,[::1]").unwrap().addresses, ["a:8500", "b:1", "[::1]:8500"]);
        assert_eq!(options("consuls://a").unwrap().addresses, ["a:8501"]);
        let socket = options("consul+unix:///run/consul.sock?prefix=x").unwrap();
        assert_eq!((socket.socket, socket.prefix.as_str()), (Some("/run/consul.sock".into()), "x"));
    }

    #[test]
    fn url_errors_do_not_show_the_token() {
        for (url, expected) in [
            ("consul://:hunter2@host?colour=red", "unknown option \"colour\""),
            ("consul://:hunter2@host:port", "host:port"),
            ("consul://:x?hunter2@host/y", "%3F"),
            ("consul://:hunter2@host?min_lease=10ms", "at least 1s"),
            ("consuls://:hunter2@host?cert=x", "needs its key"),
            ("consul://:hunter2@host?prefix=/x", "slash"),
        ] {
            for url in
                [url.to_owned(), url.replace("//:hunter2", "//hunter2"), url.replace("//:hunter2", "//u:hunter2")]
            {
                let error = options(&url).unwrap_err().to_string();
                assert!(error.contains(expected) && !error.contains("hunter2"), "{url}: {error}");
            }
        }
    }

    #[test]
    fn the_token_is_never_shown_wherever_the_url_has_it() {
        for url in [
            "consul://hunter2@host",
            "consul://:hunter2@host",
            "consuls://u:hunter2@a,b",
            "consul://host?token=hunter2",
        ] {
            let options = options(url).unwrap();
            assert_eq!(options.token, Some("hunter2".into()), "{url}");
            let written = format!("{:?}", toml::Value::try_from(&options).unwrap());
            let store = crate::ConsulStore::new(options.clone()).unwrap();
            for shown in [format!("{options:?}"), format!("{store:?}"), written] {
                assert!(!shown.contains("hunter2"), "{url}: {shown}");
            }
        }
    }
}
