//! The options of the store: how to reach the database, and how seats are held in it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
pub use tenure_kit::sql::Mode;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::schema::DEFAULT_SCHEMA;
use crate::url;

/// Options of a [`PostgresStore`](crate::PostgresStore): how to reach the database, and how seats are held in it.
///
/// Parse them from a URL, read them from a configuration file (serde), or fill in the fields. Where the URL and a
/// field disagree, the field counts. `Debug` shows neither the URL nor the password.
///
/// ```
/// use tenure_postgres::{Mode, PostgresOptions};
///
/// let options = PostgresOptions::from_url("postgres://app:secret@db.example/app?mode=session&sslmode=verify-full")?;
/// assert_eq!(options.mode, Some(Mode::Session));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?…`, with the parameters of the README, or libpq's `key=value`
    /// pairs. Several hosts, separated by commas, are tried in order.
    pub url: String,
    /// The password, if it is not part of the URL. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub password: Option<String>,
    /// Whether a row or an advisory lock holds a seat. `None` means the mode of the URL, or else [`Mode::Lease`]. All
    /// candidates of an election must use the same mode.
    pub mode: Option<Mode>,
    /// The schema of the tables. `None` means [`DEFAULT_SCHEMA`].
    pub schema: Option<String>,
    /// The advisory lock of the only election in a `mode=session` store, to share the lock with another program.
    /// `None` means a hash of each election's name ([`lock_id_of`](crate::lock_id_of)).
    pub lock_id: Option<i64>,
    /// Whether to encrypt the connection, and what to verify. `None` means [`SslMode::Prefer`].
    pub sslmode: Option<SslMode>,
    /// A PEM file with the certificates to trust, or `system` for those that the system trusts. `None` means `system`
    /// for `verify-ca` and `verify-full`.
    pub sslrootcert: Option<PathBuf>,
    /// A PEM file with the client's certificate. It needs `sslkey`.
    pub sslcert: Option<PathBuf>,
    /// A PEM file with the private key of the client's certificate.
    pub sslkey: Option<PathBuf>,
}

/// Whether to encrypt connections, and what to verify: the `sslmode` of libpq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Never encrypts. The password can be read on the network, depending on how the server authenticates.
    Disable,
    /// Connects without encryption, and encrypts only if the server rejects that. Verifies nothing.
    Allow,
    /// Encrypts if the server supports it. Verifies nothing.
    #[default]
    Prefer,
    /// Always encrypts. Verifies the issuer of the server's certificate only if `sslrootcert` is given.
    Require,
    /// Always encrypts, and verifies that a trusted authority issued the server's certificate.
    VerifyCa,
    /// Always encrypts, and verifies that a trusted authority issued the server's certificate for this host.
    VerifyFull,
}

impl SslMode {
    /// All modes, with their names in URLs.
    pub(crate) const ALL: [(&str, Self); 6] = [
        ("disable", Self::Disable),
        ("allow", Self::Allow),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| *name)
    }
}

impl PostgresOptions {
    /// Parses a URL. It accepts the parameters `mode`, `schema` and `lock_id`, and those of libpq that apply to a
    /// store. The README lists them.
    ///
    /// # Errors
    /// Returns one line, without the password, if the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let options = url::split(url)?;
        options.config()?;
        Ok(options)
    }

    /// Returns the driver's configuration for these options.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let plain = url::split(&self.url)?;
        let mut config: Config = plain.url.parse().map_err(|error| url::parse_error(&error))?;
        if let Some(password) = &self.password {
            config.password(password);
        }
        let is_split_password = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(is_split_password) {
            return Err("a host name contains an @; if it belongs to the password, write it as %40".into());
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() && !plain.url.is_empty() {
            // As libpq does.
            config.host(if cfg!(unix) { "/var/run/postgresql" } else { "localhost" });
        }
        check(&config)?;
        Ok(config)
    }

    /// Takes the parameters of the URL for all fields that are not set.
    pub(crate) fn with_url(mut self) -> Result<Self, ConfigError> {
        let given = url::split(&self.url)?;
        self.url = given.url;
        self.mode = self.mode.or(given.mode);
        self.schema = self.schema.or(given.schema);
        self.lock_id = self.lock_id.or(given.lock_id);
        self.sslmode = self.sslmode.or(given.sslmode);
        self.sslrootcert = self.sslrootcert.or(given.sslrootcert);
        self.sslcert = self.sslcert.or(given.sslcert);
        self.sslkey = self.sslkey.or(given.sslkey);
        self.check()
    }

    /// Rejects invalid options before anything is connected.
    pub(crate) fn check(self) -> Result<Self, ConfigError> {
        if self.lock_id.is_some() && self.mode() == Mode::Lease {
            return Err("lock_id needs mode=session; add that, or remove lock_id".into());
        }
        let schema = self.schema();
        if schema.is_empty() || schema.len() > 63 || schema.contains('\0') || schema.starts_with("pg_") {
            return Err(format!(
                "schema must have 1 to 63 bytes, no NUL character, and must not start with pg_, got {schema:?}"
            )
            .into());
        }
        Ok(self)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    pub(crate) fn schema(&self) -> &str {
        self.schema.as_deref().unwrap_or(DEFAULT_SCHEMA)
    }
}

pub(crate) const READ_ONLY: &str =
    "target_session_attrs must select a server that accepts writes; use any, read-write, primary or prefer-standby";

pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(
            "no host is given; write postgres://HOST/DATABASE, or ?host=/var/run/postgresql for a socket".into()
        );
    }
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        return Err(READ_ONLY.into());
    }
    let (hosts, ports) = (config.get_hosts().len().max(config.get_hostaddrs().len()), config.get_ports().len());
    if ports > 1 && ports != hosts {
        return Err(format!("got {ports} ports for {hosts} hosts; give one port for each host, or one for all").into());
    }
    Ok(())
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL is left out, as it may contain a password.
        f.debug_struct("PostgresOptions")
            .field("mode", &self.mode)
            .field("schema", &self.schema())
            .field("lock_id", &self.lock_id)
            .field("sslmode", &self.sslmode)
            .finish_non_exhaustive()
    }
}
