//! One connection to the server: logged in, and past the handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use tenure_core::StoreError;
use tenure_kit::socket::{Address, Relay};
use tenure_kit::sql::{BatchClient, BatchConnection};
use tenure_kit::{Liveness, first_of};
use tiberius::error::Error;
use tiberius::{AuthMethod, ColumnData, QueryItem, QueryStream, Row};
use tokio::io::DuplexStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::errors::{self, Failed};
use crate::handshake::{self, Server};
use crate::options::SqlServerOptions;
use crate::sessions::Silences;

/// The driver's side of a connection. The relay has the other end of its stream.
pub(crate) type Driver = tiberius::Client<Compat<DuplexStream>>;

/// The results of a batch: for each statement that returns rows, its rows.
pub(crate) type Results = Vec<Vec<Row>>;

/// Opens connections.
pub(crate) struct Connector {
    pub(crate) options: SqlServerOptions,
    pub(crate) silences: Silences,
    /// Whether the warning about writes that are not durable was logged.
    has_warned: AtomicBool,
    /// Whether connections only read, and create no tables.
    read_only: AtomicBool,
}

impl Connector {
    pub(crate) fn new(options: SqlServerOptions) -> Self {
        let [has_warned, read_only] = [const { AtomicBool::new(false) }; 2];
        Self { options, silences: Silences::default(), has_warned, read_only }
    }

    /// Makes all connections from now on read only.
    pub(crate) fn make_read_only(&self) {
        self.read_only.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Connects to the first server that accepts writes.
    pub(crate) async fn connect(&self) -> Result<SqlConnection, StoreError> {
        let within = Duration::from_secs(self.options.connect_timeout.max(1).into());
        let hosts = &self.options.hosts;
        first_of(hosts.iter(), HEAD_START, async |host| {
            let opened = tokio::time::timeout(within, self.connect_to(host, hosts.len() == 1)).await;
            opened.unwrap_or_else(|_| Err(errors::silent(&Address::Host(host.clone()))))
        })
        .await
    }

    async fn connect_to(&self, host: &str, alone: bool) -> Result<SqlConnection, StoreError> {
        let mut address = Address::Host(host.to_owned());
        let mut opened = self.log_in(&address).await?;
        // Azure, and the listener of an availability group, may send the client to another server.
        if let Err(Error::Routing { host, port }) = opened {
            address = Address::Host(format!("{host}:{port}"));
            opened = self.log_in(&address).await?;
        }
        let encrypt = self.options.encrypt;
        let (mut client, liveness, relay) = opened.map_err(|error| errors::login_failed(&address, encrypt, error))?;
        let handshake = handshake::handshake(&mut client, &self.options, &address, alone, self.is_read_only());
        let server = handshake.with_subscriber(NoSubscriber::default()).await?;
        if !server.is_durable && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %address,
                "a crash of the server can lose confirmed writes, and then two candidates can lead at once: set \
                 DELAYED_DURABILITY of the database to DISABLED or ALLOWED"
            );
        }
        Ok(SqlConnection::new(Client(client), server, liveness, relay))
    }

    /// Connects and logs in. If this fails, nothing was written.
    async fn log_in(&self, address: &Address) -> Result<Result<LoggedIn, Error>, StoreError> {
        let mut config = self.options.driver(&address.to_string());
        config.authentication(self.login().await?);
        let liveness = Arc::new(Liveness::new());
        // The driver reads from its stream only during a statement. The relay reads all the time, notices at once that
        // the server has ended the session, and has the socket for a lifeline.
        let (driver, relayed) = tokio::io::duplex(1 << 16);
        let relay = Relay::open(address, liveness.clone(), async { Ok(relayed) }).await;
        let relay = relay.map_err(|error| errors::unreachable(address, error))?;
        // The driver logs errors and settings that this store reports itself.
        let client = Driver::connect(config, driver.compat_write()).with_subscriber(NoSubscriber::default()).await;
        Ok(client.map(|client| (client, liveness, relay)))
    }

    async fn login(&self) -> Result<AuthMethod, StoreError> {
        let options = &self.options;
        let Some(file) = &options.token_file else {
            let password = options.password.as_ref().map_or("", |password| password.0.as_str());
            return Ok(AuthMethod::sql_server(options.user.as_deref().unwrap_or_default(), password));
        };
        // Another program renews the token in the file.
        let path = file.clone();
        let token = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
        match token.await.map_err(std::io::Error::other).flatten() {
            Ok(token) => Ok(AuthMethod::aad_token(token.trim())),
            Err(error) => {
                let message = format!("cannot read the access token from {}; check token_file", file.display());
                Err(StoreError::refused(message).because(error))
            }
        }
    }
}

type LoggedIn = (Driver, Arc<Liveness>, Relay);

/// If a host has not answered after this time, the next one is tried as well.
const HEAD_START: Duration = Duration::from_millis(250);

/// One connection to the server. It runs one batch of statements at a time and in one round trip. The server executes them
/// in order, and stops at the first one that fails.
pub(crate) type SqlConnection = BatchConnection<Client, Server>;

/// A batch, and its parameters: `@P1` has what it is about, as JSON, `@P2` a session (0: none), and `@P3` a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) sql: String,
    pub(crate) want: String,
    pub(crate) session: i64,
    pub(crate) number: i64,
}

pub(crate) struct Client(Driver);

impl BatchClient for Client {
    type Batch = Batch;
    type Results = Results;
    type Error = Failed;

    async fn run(&mut self, batch: Batch) -> Result<Results, Failed> {
        let run = async {
            let answer = self.0.query(batch.sql, &[&batch.want, &batch.session, &batch.number]).await;
            collect(answer).await
        };
        run.with_subscriber(NoSubscriber::default()).await
    }
}

/// Runs statements without parameters, whose settings stay in effect.
pub(crate) async fn run_plain(client: &mut Driver, sql: &str) -> Result<Results, Failed> {
    let answer = client.simple_query(sql).await;
    collect(answer).await
}

/// Collects the rows. An error of the server comes at the end, when everything before it was read, so the connection can
/// be used again.
async fn collect(answer: Result<QueryStream<'_>, Error>) -> Result<Results, Failed> {
    let mut results = Results::new();
    let failed = |error, done| match error {
        Error::Server(reply) => Failed::Reply(reply, done),
        error => Failed::Broken(error),
    };
    let mut answer = answer.map_err(|error| failed(error, 0))?;
    while let Some(item) = answer.try_next().await.map_err(|error| failed(error, results.len()))? {
        match (item, results.last_mut()) {
            (QueryItem::Row(row), Some(rows)) => rows.push(row),
            _ => results.push(Vec::new()),
        }
    }
    Ok(results)
}

/// Returns a whole number of a row, whatever its type.
pub(crate) fn number(row: &Row, column: usize) -> Option<i64> {
    match row.cells().nth(column)?.1 {
        ColumnData::U8(value) => value.map(i64::from),
        ColumnData::I16(value) => value.map(i64::from),
        ColumnData::I32(value) => value.map(i64::from),
        ColumnData::I64(value) => *value,
        ColumnData::Bit(value) => value.map(i64::from),
        _ => None,
    }
}

/// Returns a text of a row.
pub(crate) fn text(row: &Row, column: usize) -> Option<String> {
    row.try_get::<&str, _>(column).ok().flatten().map(str::to_owned)
}

/// Returns a name of a row, which is stored as UTF-8.
pub(crate) fn name(row: &Row, column: usize) -> Option<String> {
    let bytes = row.try_get::<&[u8], _>(column).ok().flatten()?;
    String::from_utf8(bytes.to_owned()).ok()
}
