//! The options of the store: how to reach the database, and how seats are held in it.

use std::path::PathBuf;

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};
use serde::{Deserialize, Serialize};
use tenure_core::{ConfigError, SeatName};
use tenure_kit::options::refuse;
use tenure_kit::socket::Address;
use tenure_kit::sql::Mode;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded};

use crate::schema::{DEFAULT_TABLE_PREFIX, lock_name_of};

/// The URL schemes that [`MysqlOptions::from_url`] accepts.
pub const SCHEMES: &[&str] = &["mysql", "mariadb"];

/// Options of a [`MysqlStore`](crate::MysqlStore): how to reach the database, and how seats are held in it.
///
/// Parse them from a URL, read them from a configuration file (serde), or fill in the fields. `Debug` does not show the
/// password.
///
/// ```
/// use tenure_mysql::{Mode, MysqlOptions};
///
/// let options = MysqlOptions::from_url("mysql://app:secret@db.example/app?mode=session&ssl-mode=verify_identity")?;
/// assert_eq!((options.mode, options.database.as_str()), (Mode::Session, "app"));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MysqlOptions {
    /// The `host:port` of the servers. They are tried in order, and servers that are read-only are skipped.
    pub hosts: Vec<String>,
    /// The user to log in as.
    pub user: Option<String>,
    /// The password of the user. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// The database that has the tables.
    pub database: String,
    /// Whether a row or a lock of a session holds a seat. All candidates of an election must use the same mode.
    pub mode: Mode,
    /// The beginning of the names of the tables, [`DEFAULT_TABLE_PREFIX`] by default.
    pub table_prefix: String,
    /// Whether to encrypt the connection, and what to verify.
    pub ssl_mode: SslMode,
    /// A PEM file with the certificates to trust. `None` means the root certificates of Mozilla.
    pub ssl_ca: Option<PathBuf>,
    /// A PEM file with the client's certificate. It needs `ssl_key`.
    pub ssl_cert: Option<PathBuf>,
    /// A PEM file with the private key of the client's certificate.
    pub ssl_key: Option<PathBuf>,
    /// The time-out of connecting to one server, in seconds, 3 by default.
    pub connect_timeout: u32,
}

impl Default for MysqlOptions {
    fn default() -> Self {
        Self {
            hosts: vec!["127.0.0.1:3306".to_owned()],
            user: None,
            password: None,
            database: String::new(),
            mode: Mode::Lease,
            table_prefix: DEFAULT_TABLE_PREFIX.to_owned(),
            ssl_mode: SslMode::Preferred,
            ssl_ca: None,
            ssl_cert: None,
            ssl_key: None,
            connect_timeout: 3,
        }
    }
}

/// Whether to encrypt connections, and what to verify: the `ssl-mode` of MySQL's own programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SslMode {
    /// Never encrypts.
    Disabled,
    /// Encrypts if the server supports it. Verifies nothing.
    #[default]
    Preferred,
    /// Always encrypts. Verifies nothing.
    Required,
    /// Always encrypts, and verifies that a trusted authority issued the server's certificate for this host.
    VerifyIdentity,
}

impl SslMode {
    const ALL: [(&str, Self); 4] = [
        ("disabled", Self::Disabled),
        ("preferred", Self::Preferred),
        ("required", Self::Required),
        ("verify_identity", Self::VerifyIdentity),
    ];

    const MUST_BE: &str = "disabled, preferred, required or verify_identity";

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| *name)
    }
}

impl MysqlOptions {
    /// Parses a URL: `mysql://user:password@host:port,host:port/database?…`. The README lists the parameters.
    ///
    /// # Errors
    /// Returns one line if the URL is invalid or its options contradict each other. It never shows more of the URL than
    /// the name of an option.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let url = Url::parse(url, SCHEMES)?;
        let (user, password, database) = (url.user()?, url.password()?, decoded(url.path())?);
        let mut options = Self { user, password, database, ..Self::default() };
        url.hosts(3306, &mut options.hosts)?;
        let mut given = url.options()?;
        given.choose("mode", &mut options.mode, &[("lease", Mode::Lease), ("session", Mode::Session)])?;
        given.take("table_prefix", &mut options.table_prefix)?;
        // MySQL's own programs accept the modes in any case, and their manual writes them in upper case.
        given.take_with("ssl-mode", SslMode::MUST_BE, &mut options.ssl_mode, |text| {
            SslMode::ALL.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, mode)| *mode)
        })?;
        given.take("ssl-ca", &mut options.ssl_ca)?.take("ssl-cert", &mut options.ssl_cert)?;
        given.take("ssl-key", &mut options.ssl_key)?.take("connect_timeout", &mut options.connect_timeout)?;
        given.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Rejects invalid options before anything is connected.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        refuse(&[
            (self.database.is_empty(), "no database is given; write mysql://USER:PASSWORD@HOST:PORT/DATABASE"),
            (
                self.database.chars().count() > 64 || self.database.contains(['\0', '/']),
                "the name of the database must have at most 64 characters, without a slash",
            ),
            (self.hosts.is_empty(), "no host is given; write mysql://USER:PASSWORD@HOST:PORT/DATABASE"),
            (
                !(1..=32).contains(&self.table_prefix.len()) || !is_plain(&self.table_prefix),
                "table_prefix must have 1 to 32 characters, all of them letters, digits or _",
            ),
            (
                self.ssl_cert.is_some() != self.ssl_key.is_some(),
                "ssl-cert and ssl-key must be given together; add the missing one, or remove the other",
            ),
        ])
    }

    /// Returns the name of the lock that holds a seat in `mode=session`.
    pub(crate) fn lock_name(&self, seat: &SeatName) -> String {
        lock_name_of(&self.database, &self.table_prefix, seat.as_str())
    }

    /// Returns the driver's options for a server whose bytes are relayed on a port of this machine.
    pub(crate) fn driver(&self, address: &Address, port: u16, is_encrypted: bool) -> Opts {
        let name = match address {
            Address::Host(host) => {
                host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name.trim_matches(['[', ']']))
            }
            Address::Socket(_) => "localhost",
        };
        let identity = self.ssl_cert.clone().zip(self.ssl_key.clone());
        let ssl = SslOpts::default()
            .with_danger_tls_hostname_override(Some(name.to_owned()))
            .with_root_certs(self.ssl_ca.iter().map(|file| file.clone().into()).collect())
            .with_disable_built_in_roots(self.ssl_ca.is_some())
            .with_danger_accept_invalid_certs(matches!(self.ssl_mode, SslMode::Preferred | SslMode::Required))
            .with_client_identity(identity.map(|(cert, key)| ClientIdentity::new(cert.into(), key.into())));
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(port)
            .user(self.user.as_deref())
            .pass(self.password.as_ref().map(|password| password.0.as_str()))
            .db_name(Some(&self.database))
            // The driver would otherwise look for a socket of the server on this machine.
            .prefer_socket(false)
            // The driver would otherwise ask the server for both.
            .max_allowed_packet(Some(16 << 20))
            .wait_timeout(Some(28_800))
            .ssl_opts(is_encrypted.then_some(ssl))
            .connect_attribute("program_name", "tenure")
            .into()
    }
}
