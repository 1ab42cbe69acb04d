//! One connection to the server: logged in, and past the handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Row};
use tenure_core::{Fault, StoreError};
use tenure_kit::{Connection, Liveness, Patience};
use tokio::sync::Mutex;

use crate::errors::{self, Failed};
use crate::handshake::{self, Server};
use crate::options::{MysqlOptions, SslMode};
use crate::relay::{Relay, Target};

/// The results of a batch: for each statement, its rows.
pub(crate) type Results = Vec<Vec<Row>>;

/// Opens connections.
pub(crate) struct Connector {
    pub(crate) options: MysqlOptions,
    /// Whether the warning about writes that are not durable was logged.
    has_warned: AtomicBool,
    /// Whether connections only read, and create no tables.
    read_only: AtomicBool,
    /// Whether a server was found that does not support TLS: then TLS that is only preferred is not tried again.
    is_plain: AtomicBool,
}

impl Connector {
    pub(crate) fn new(options: MysqlOptions) -> Self {
        let [has_warned, read_only, is_plain] = [const { AtomicBool::new(false) }; 3];
        Self { options, has_warned, read_only, is_plain }
    }

    /// Makes all connections from now on read only.
    pub(crate) fn make_read_only(&self) {
        self.read_only.store(true, Ordering::Relaxed);
    }

    /// Connects to the first server that accepts writes. A statement that is not answered within `longest` ends the
    /// connection.
    pub(crate) async fn connect(&self, longest: Duration) -> Result<MyConnection, StoreError> {
        let targets: Vec<Target> = match &self.options.socket {
            Some(path) => vec![Target::Socket(path.clone())],
            None => self.options.hosts.iter().cloned().map(Target::Host).collect(),
        };
        let mut problem = StoreError::denied("no host is given; write mysql://USER:PASSWORD@HOST:PORT/DATABASE");
        for target in &targets {
            let within = Duration::from_secs(self.options.connect_timeout.max(1).into());
            let opened = tokio::time::timeout(within, self.connect_to(target, targets.len() == 1, longest)).await;
            // Nothing was written. Yet the fault is `Unknown`, as that of a call that times out: so a server that does
            // not answer is reported once, and not once for each kind of fault.
            match opened.unwrap_or_else(|_| Err(errors::silent(target))) {
                Ok(connection) => return Ok(connection),
                // An error that may go away takes precedence over a permanent one.
                Err(error) if problem.fault() == Fault::Denied => problem = error,
                Err(_) => {}
            }
        }
        Err(problem)
    }

    async fn connect_to(&self, target: &Target, alone: bool, longest: Duration) -> Result<MyConnection, StoreError> {
        let ssl = self.options.ssl_mode;
        // As with MySQL's own programs, sockets are not encrypted.
        let is_plain = self.is_plain.load(Ordering::Relaxed) && ssl == SslMode::Preferred;
        let encrypts = ssl != SslMode::Disabled && matches!(target, Target::Host(_)) && !is_plain;
        let opened = match self.log_in(target, encrypts).await? {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if ssl == SslMode::Preferred => {
                self.is_plain.store(true, Ordering::Relaxed);
                self.log_in(target, false).await?
            }
            opened => opened,
        };
        let (mut conn, liveness, relay) = opened.map_err(|error| errors::login_failed(target, ssl, error))?;
        let read_only = self.read_only.load(Ordering::Relaxed);
        let server = handshake::handshake(&mut conn, &self.options, target, alone, read_only).await?;
        if !server.is_durable && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %target,
                "a crash of the server can lose confirmed writes, and then two candidates can lead at once: set \
                 innodb_flush_log_at_trx_commit=1 on the server"
            );
        }
        let (conn, lacks_tables) = (Arc::new(Mutex::new(conn)), AtomicBool::new(false));
        Ok(MyConnection { conn, server, liveness, relay, longest, is_session: false, lacks_tables })
    }

    /// Connects and logs in. If this fails, nothing was written.
    async fn log_in(
        &self,
        target: &Target,
        encrypts: bool,
    ) -> Result<Result<(Conn, Arc<Liveness>, Relay), Error>, StoreError> {
        let liveness = Arc::new(Liveness::new());
        let relay = Relay::open(target, liveness.clone()).await.map_err(|error| errors::unreachable(target, error))?;
        let conn = Conn::new(self.options.driver(target.name(), relay.port, encrypts)).await;
        Ok(conn.map(|conn| (conn, liveness, relay)))
    }
}

/// One connection to the server. It runs one batch of statements at a time, as the protocol requires.
pub(crate) struct MyConnection {
    conn: Arc<Mutex<Conn>>,
    pub(crate) server: Server,
    liveness: Arc<Liveness>,
    relay: Relay,
    longest: Duration,
    /// Whether the connection is a session, which stays open although a table is missing.
    pub(crate) is_session: bool,
    /// Whether a table is missing. A new connection creates it if its user is allowed to.
    lacks_tables: AtomicBool,
}

impl Connection for MyConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// A single call that times out may only be slow. If the server has been silent for twice as long as the call waited,
/// other calls timed out before it, and a new connection may work.
const PATIENCE: Patience = Patience { at_least: Duration::ZERO, times: 2 };

impl MyConnection {
    /// Runs a batch of statements, separated by semicolons, in one round trip. The server executes them in order, and
    /// stops at the first one that fails.
    ///
    /// If the future is dropped before the batch is sent, it is never sent. If it is dropped later, the batch runs to
    /// its end, and batches that are sent later on this connection run after it.
    pub(crate) async fn run(self: &Arc<Self>, sql: String) -> Result<Results, Failed> {
        let waiting = self.liveness.waiting(PATIENCE);
        let turn = self.conn.clone().lock_owned().await;
        let connection = self.clone();
        // A batch that is abandoned half-way would leave the connection unusable: so it runs in a task of its own.
        let batch = tokio::spawn(async move {
            let mut conn = turn;
            let answer = tokio::time::timeout(connection.longest, run(&mut conn, sql)).await;
            let answer = answer.unwrap_or(Err(Failed::Unanswered));
            if answer.as_ref().is_err_and(Failed::is_missing_table) {
                connection.lacks_tables.store(true, Ordering::Relaxed);
            }
            let ends = |failed: &Failed| match failed.is_missing_table() {
                true => !connection.is_session,
                false => failed.ends_the_connection(),
            };
            if answer.as_ref().is_err_and(ends) {
                connection.close();
            }
            answer
        });
        let answer = batch.await.unwrap_or(Err(Failed::Unanswered));
        waiting.answered();
        answer
    }

    /// Returns whether calls should use this connection: the server answers on it, and has the tables.
    pub(crate) fn is_good(&self) -> bool {
        self.liveness.is_good() && !self.lacks_tables.load(Ordering::Relaxed)
    }

    /// Closes the connection at once. The fate of a batch in flight is unknown.
    pub(crate) fn close(&self) {
        self.liveness.close();
        self.relay.abort();
    }

    /// Returns a duplicate of the socket. If this process is killed, the connection stays open until all duplicates are
    /// closed.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline> {
        self.relay.lifeline()
    }
}

/// Runs a batch, and returns the rows of each statement.
pub(crate) async fn run(conn: &mut Conn, sql: String) -> Result<Results, Failed> {
    let mut results = Results::new();
    let failed = |error: Error, done: usize| match error {
        Error::Server(reply) => Failed::Reply(reply, done),
        error => Failed::Broken(error),
    };
    let mut answers = conn.query_iter(sql).await.map_err(|error| failed(error, 0))?;
    loop {
        let rows = answers.collect().await.map_err(|error| failed(error, results.len()))?;
        results.push(rows);
        if answers.is_empty() {
            break;
        }
    }
    // The driver says that nothing is left, and keeps back an error of the next statement until it is asked for more.
    answers.collect::<Row>().await.map_err(|error| failed(error, results.len()))?;
    drop(answers);
    Ok(results)
}
