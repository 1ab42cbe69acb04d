//! How to reach a database, and how seats are kept in it.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::schema::DEFAULT_SCHEMA;
use crate::url;

/// How to reach a database, and how seats are kept in it.
///
/// ```
/// use tenure_postgres::{Mode, PostgresOptions};
///
/// let options = PostgresOptions::from_url("postgres://app:secret@db.example/app?mode=session&sslmode=verify-full")?;
/// assert_eq!(options.mode, Mode::Session);
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?…`, with the parameters of libpq that make sense
    /// here, or as libpq's `key=value` pairs. Several hosts, separated by commas, are tried in turn.
    pub url: String,
    /// The password, where it is not to stand in the URL.
    #[serde(skip_serializing)]
    pub password: Option<String>,
    /// How seats are held.
    pub mode: Mode,
    /// The schema that the tables are in; `None`: [`DEFAULT_SCHEMA`].
    pub schema: Option<String>,
    /// The advisory lock that the one election of a `mode=session` store is held on, to share it with
    /// another program; `None`: a hash of each election's name ([`lock_id_of`](crate::lock_id_of)).
    pub lock_id: Option<i64>,
    /// Whether to encrypt, and what to check; `None`: [`SslMode::Prefer`].
    pub sslmode: Option<SslMode>,
    /// A file with the certificates to trust, in PEM; `system`, and what `None` means for
    /// `verify-ca` and `verify-full`: those that the system trusts.
    pub sslrootcert: Option<PathBuf>,
    /// A file with our own certificate, in PEM.
    pub sslcert: Option<PathBuf>,
    /// A file with the key of our own certificate, in PEM.
    pub sslkey: Option<PathBuf>,
}

/// How seats are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By a row that is renewed, on the server's clock. Works through a connection pooler.
    #[default]
    Lease,
    /// By an advisory lock of a session, which the server frees when the session ends.
    Session,
}

/// Whether to encrypt, and what to check, as libpq spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// In plain.
    Disable,
    /// In plain, unless the server lets us in only encrypted. Nothing is checked.
    Allow,
    /// Encrypted if the server can. Nothing is checked.
    #[default]
    Prefer,
    /// Encrypted. The certificate is checked only if `sslrootcert` says by what.
    Require,
    /// Encrypted, with a certificate from somebody we trust.
    VerifyCa,
    /// Encrypted, with a certificate for this very host from somebody we trust.
    VerifyFull,
}

impl SslMode {
    /// All of them, with their names.
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
    /// From a URL. Beside those of libpq it takes the parameters `mode`, `schema` and `lock_id`.
    ///
    /// # Errors
    /// In one line, without the password, if the URL cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let options = url::split(url)?;
        options.config()?;
        Ok(options)
    }

    /// The driver's own form of it.
    pub(crate) fn config(&self) -> Result<Config, String> {
        let plain = url::split(&self.url)?;
        let mut config: Config = plain.url.parse().map_err(|error| url::complaint(&error))?;
        if let Some(password) = &self.password {
            config.password(password);
        }
        let is_split_password = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(is_split_password) {
            return Err("an @ in a password is written as %40".to_owned());
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() && !plain.url.is_empty() {
            // As libpq does.
            config.host(if cfg!(unix) { "/var/run/postgresql" } else { "localhost" });
        }
        check(&config)?;
        Ok(config)
    }

    /// Parameters of the URL count where a field does not say otherwise.
    pub(crate) fn with_url(mut self) -> Result<Self, String> {
        let given = url::split(&self.url)?;
        self.url = given.url;
        self.schema = self.schema.or(given.schema);
        self.lock_id = self.lock_id.or(given.lock_id);
        self.sslmode = self.sslmode.or(given.sslmode);
        self.sslrootcert = self.sslrootcert.or(given.sslrootcert);
        self.sslcert = self.sslcert.or(given.sslcert);
        self.sslkey = self.sslkey.or(given.sslkey);
        if self.mode == Mode::default() {
            self.mode = given.mode;
        }
        self.check()
    }

    /// What cannot be is said at once.
    pub(crate) fn check(self) -> Result<Self, String> {
        if self.lock_id.is_some() && self.mode == Mode::Lease {
            return Err("lock_id goes with mode=session: mode=lease takes no lock".to_owned());
        }
        let schema = self.schema();
        if schema.is_empty() || schema.len() > 63 || schema.contains('\0') || schema.starts_with("pg_") {
            return Err(format!("{schema:?} cannot be the name of a schema"));
        }
        Ok(self)
    }

    pub(crate) fn schema(&self) -> &str {
        self.schema.as_deref().unwrap_or(DEFAULT_SCHEMA)
    }
}

pub(crate) const READ_ONLY: &str = "target_session_attrs must let servers be written to: seats are";

pub(crate) fn check(config: &Config) -> Result<(), String> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("name the host of the database: postgres://HOST/DATABASE, or ?host=/var/run/postgresql".to_owned());
    }
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
        return Err(READ_ONLY.to_owned());
    }
    let (hosts, ports) = (config.get_hosts().len().max(config.get_hostaddrs().len()), config.get_ports().len());
    if ports > 1 && ports != hosts {
        return Err(format!("{ports} ports for {hosts} hosts: name one for each, or one for all"));
    }
    Ok(())
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There may be a password in the URL, so it is not shown at all.
        f.debug_struct("PostgresOptions")
            .field("mode", &self.mode)
            .field("schema", &self.schema())
            .field("lock_id", &self.lock_id)
            .field("sslmode", &self.sslmode)
            .finish_non_exhaustive()
    }
}
