//! The options of the store: how to reach the database, and how seats are held in it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;
use tenure_kit::options::{Value, refuse, unknown};
use tenure_kit::sql::Mode;
pub use tenure_kit::url::Secret;
use tenure_kit::url::{Url, decoded, with_port};
use tiberius::{Config, EncryptionLevel};

use crate::connection_string::{is_connection_string, pairs, plain};
use crate::schema::DEFAULT_SCHEMA;

/// The URL schemes that [`SqlServerOptions::parse`] accepts.
pub const SCHEMES: &[&str] = &["sqlserver", "mssql"];

/// Options of a [`SqlServerStore`](crate::SqlServerStore): how to reach the database, and how seats are held in it.
///
/// Parse them from a URL or a connection string, read them from a configuration file (serde), or fill in the fields.
/// `Debug` does not show the password.
///
/// ```
/// use tenure_sqlserver::{Mode, SqlServerOptions};
///
/// let url = SqlServerOptions::parse("sqlserver://app:secret@db.example/app?mode=session")?;
/// let ado = SqlServerOptions::parse("Server=tcp:db.example,1433;Database=app;User Id=app;Password=secret;Mode=session")?;
/// assert_eq!(url, ado);
/// assert_eq!((url.mode, url.database.as_str()), (Mode::Session, "app"));
/// assert!(!format!("{url:?}").contains("secret"));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SqlServerOptions {
    /// The `host:port` of the servers. They are tried in order, and servers that are read-only are skipped.
    pub hosts: Vec<String>,
    /// The SQL login.
    pub user: Option<String>,
    /// The password of the login. Left out when the options are serialized.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// A file with an access token of Microsoft Entra, which replaces user and password. It is read at each connect.
    pub token_file: Option<PathBuf>,
    /// The database that has the tables.
    pub database: String,
    /// Whether a row or a session holds a seat. All candidates of an election must use the same mode.
    pub mode: Mode,
    /// The schema of the tables, [`DEFAULT_SCHEMA`] by default.
    pub schema: String,
    /// Whether to encrypt connections.
    pub encrypt: Encrypt,
    /// Whether to accept any certificate of the server.
    pub trust_server_certificate: bool,
    /// The name that the server's certificate must have, if it is not that of the host.
    pub host_name_in_certificate: Option<String>,
    /// A PEM file with a certificate to trust, in addition to those of this system.
    pub ca: Option<PathBuf>,
    /// The time-out of connecting to one server, in seconds, 5 by default.
    pub connect_timeout: u32,
}

impl Default for SqlServerOptions {
    fn default() -> Self {
        Self {
            hosts: vec!["127.0.0.1:1433".to_owned()],
            user: None,
            password: None,
            token_file: None,
            database: String::new(),
            mode: Mode::Lease,
            schema: DEFAULT_SCHEMA.to_owned(),
            encrypt: Encrypt::Mandatory,
            trust_server_certificate: false,
            host_name_in_certificate: None,
            ca: None,
            connect_timeout: 5,
        }
    }
}

/// Whether to encrypt connections, in the words of Microsoft's drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encrypt {
    /// Never encrypts, not even the password.
    Disable,
    /// Encrypts the log-in, and everything else if the server requires it.
    Optional,
    /// Encrypts everything.
    #[default]
    Mandatory,
    /// Encrypts everything from the first byte (TDS 8.0, SQL Server 2022).
    Strict,
}

impl Encrypt {
    /// The names of each, the first one as errors show it.
    const NAMES: [(&str, Self); 8] = [
        ("disable", Self::Disable),
        ("optional", Self::Optional),
        ("false", Self::Optional),
        ("no", Self::Optional),
        ("mandatory", Self::Mandatory),
        ("true", Self::Mandatory),
        ("yes", Self::Mandatory),
        ("strict", Self::Strict),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, encrypt)| *encrypt == self).map_or("", |(name, _)| *name)
    }
}

const MODES: [(&str, Mode); 2] = [("lease", Mode::Lease), ("session", Mode::Session)];

/// Flags as drivers write them.
const FLAGS: [(&str, bool); 5] = [("true", true), ("yes", true), ("sspi", true), ("false", false), ("no", false)];

/// The options that errors list. Names ignore case, spaces, underscores and hyphens.
const KNOWN: &str = "database user_id password token_file mode schema encrypt trust_server_certificate \
     host_name_in_certificate ca connect_timeout";

/// Options of drivers that mean nothing here: a store has one connection, which it names itself and never pools, and tries
/// all addresses of a host.
const IGNORED: &str = "app applicationintent applicationname commandtimeout connectionlifetime connectretrycount \
     connectretryinterval driver enlist loadbalancetimeout mars marsconnection maxpoolsize minpoolsize \
     multipleactiveresultsets multisubnetfailover packetsize persistsecurityinfo poolblockingperiod pooling \
     transparentnetworkipresolution workstationid wsid";

impl SqlServerOptions {
    /// Parses a URL, `sqlserver://user:password@host:port,host:port/database?…`, or a connection string, `Server=tcp:host,port;
    /// Database=…;…`. The README lists the options, which are the same in both.
    ///
    /// # Errors
    /// Returns one line if the text is invalid or its options contradict each other. It never shows more of the text than
    /// the name of an option.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        let given = if is_connection_string(text) {
            pairs(text)?
        } else {
            let url = Url::parse(text, SCHEMES)?;
            (options.user, options.password) = (url.user()?, url.password()?);
            options.database = decoded(url.path())?;
            url.hosts(1433, &mut options.hosts)?;
            let parts = |pair: &str| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((name.to_owned(), decoded(value)?))
            };
            let query = url.options()?.rest();
            query.split('&').filter(|pair| !pair.is_empty()).map(parts).collect::<Result<_, ConfigError>>()?
        };
        let mut seen = Vec::new();
        for (name, value) in given {
            options.set(&name, &value)?;
            if seen.contains(&plain(&name)) {
                return Err(format!("option {name} is given twice; give it once").into());
            }
            seen.push(plain(&name));
        }
        options.check()?;
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        // The value is not shown, because it may be a secret.
        let must_be = |what: &str| format!("{name} must be {what}");
        match plain(name).as_str() {
            "server" => self.hosts = vec![host(value)?],
            "database" | "initialcatalog" => self.database = value.to_owned(),
            "userid" | "uid" | "user" => self.user = Some(value.to_owned()),
            "password" | "pwd" => self.password = Some(value.into()),
            "tokenfile" => self.token_file = Some(value.into()),
            "mode" => self.mode = one_of(&MODES, value).ok_or_else(|| must_be("lease or session"))?,
            "schema" => self.schema = value.to_owned(),
            "encrypt" => {
                let encrypt = one_of(&Encrypt::NAMES, value);
                self.encrypt = encrypt.ok_or_else(|| must_be("optional, mandatory, strict or disable"))?;
            }
            "trustservercertificate" | "trustcert" => {
                self.trust_server_certificate = one_of(&FLAGS, value).ok_or_else(|| must_be("true or false"))?;
            }
            "hostnameincertificate" => self.host_name_in_certificate = Some(value.to_owned()),
            "ca" => self.ca = Some(value.into()),
            "connecttimeout" | "connectiontimeout" | "timeout" => {
                self.connect_timeout = u32::read(value).ok_or_else(|| must_be(u32::MUST_BE))?;
            }
            "integratedsecurity" | "trustedconnection" if one_of(&FLAGS, value) == Some(false) => {}
            "integratedsecurity" | "trustedconnection" | "authentication" => {
                return Err(
                    format!("{name} is not supported; use a SQL login, or token_file for Microsoft Entra").into()
                );
            }
            plain if IGNORED.split_whitespace().any(|ignored| ignored == plain) => {}
            _ => return Err(unknown(name, &KNOWN.split_whitespace().collect::<Vec<_>>())),
        }
        Ok(())
    }

    /// Rejects invalid options before anything is connected.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let is_name = |name: &str| !name.is_empty() && name.chars().count() <= 128 && !name.contains(char::is_control);
        refuse(&[
            (self.database.is_empty(), "no database is given; write sqlserver://USER:PASSWORD@HOST:PORT/DATABASE"),
            (!is_name(&self.database), "the name of the database must have at most 128 characters"),
            (self.hosts.is_empty(), "no host is given; write sqlserver://USER:PASSWORD@HOST:PORT/DATABASE"),
            (!is_name(&self.schema), "schema must have 1 to 128 characters"),
            (
                self.token_file.is_some() && (self.user.is_some() || self.password.is_some()),
                "token_file replaces user and password; remove one or the other",
            ),
            (
                self.trust_server_certificate && (self.ca.is_some() || self.host_name_in_certificate.is_some()),
                "trust_server_certificate accepts any certificate; remove it, or remove ca and host_name_in_certificate",
            ),
        ])
    }

    /// Returns the driver's options for this `host:port`, without the login.
    pub(crate) fn driver(&self, host: &str) -> Config {
        let mut config = Config::new();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name.trim_matches(['[', ']']));
        config.host(name);
        config.database(&self.database);
        config.application_name("tenure");
        config.encryption(match self.encrypt {
            Encrypt::Disable => EncryptionLevel::NotSupported,
            Encrypt::Optional => EncryptionLevel::Off,
            Encrypt::Mandatory => EncryptionLevel::Required,
            Encrypt::Strict => EncryptionLevel::Strict,
        });
        if self.trust_server_certificate {
            config.trust_cert();
        }
        if let Some(file) = &self.ca {
            config.trust_cert_ca(file.display());
        }
        if let Some(name) = &self.host_name_in_certificate {
            config.hostname_in_certificate(name);
        }
        // This store has time-outs of its own for both.
        config.handshake_timeout(None);
        config.command_timeout(None);
        config
    }
}

/// Reads a server as drivers write it: `tcp:host,port`, `host`, or `host:port`.
fn host(text: &str) -> Result<String, ConfigError> {
    let text = text.trim();
    let text =
        text.get(..4).filter(|front| front.eq_ignore_ascii_case("tcp:")).map_or(text, |front| &text[front.len()..]);
    if text.contains('\\') {
        return Err("a named instance is not supported; write its port: Server=HOST,PORT".into());
    }
    let (name, port) = text.split_once(',').map_or((text, None), |(name, port)| (name.trim(), Some(port.trim())));
    let name = if ["(local)", "."].contains(&name) { "localhost" } else { name };
    with_port(&port.map_or(name.to_owned(), |port| format!("{name}:{port}")), 1433)
}

/// Finds a value by its name, in any case.
fn one_of<T: Copy>(values: &[(&str, T)], text: &str) -> Option<T> {
    values.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value)
}
