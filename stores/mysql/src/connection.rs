//! One connection to the server: logged in, and past the handshake.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Row};
use tenure_core::StoreError;
use tenure_kit::socket::{Address, Relay};
use tenure_kit::{Connection, Liveness, Patience, first_of};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::errors::{self, Failed};
use crate::handshake::{self, Server};
use crate::options::{MysqlOptions, SslMode};

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

    /// Connects to the first server that accepts writes.
    pub(crate) async fn connect(&self) -> Result<MyConnection, StoreError> {
        let addresses: Vec<Address> = self.options.hosts.iter().cloned().map(Address::Host).collect();
        let within = Duration::from_secs(self.options.connect_timeout.max(1).into());
        first_of(addresses.iter(), HEAD_START, async |address| {
            let opened = tokio::time::timeout(within, self.connect_to(address, addresses.len() == 1)).await;
            opened.unwrap_or_else(|_| Err(errors::silent(address)))
        })
        .await
    }

    async fn connect_to(&self, address: &Address, alone: bool) -> Result<MyConnection, StoreError> {
        let ssl = self.options.ssl_mode;
        let is_plain = self.is_plain.load(Ordering::Relaxed) && ssl == SslMode::Preferred;
        let encrypts = ssl != SslMode::Disabled && !is_plain;
        let opened = match self.log_in(address, encrypts).await? {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if ssl == SslMode::Preferred => {
                self.is_plain.store(true, Ordering::Relaxed);
                self.log_in(address, false).await?
            }
            opened => opened,
        };
        let (mut conn, liveness, relay, port) = opened.map_err(|error| errors::login_failed(address, ssl, error))?;
        let read_only = self.read_only.load(Ordering::Relaxed);
        let server = handshake::handshake(&mut conn, &self.options, address, alone, read_only).await?;
        if !server.is_durable && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %address,
                "a crash of the server can lose confirmed writes, and then two candidates can lead at once: set \
                 innodb_flush_log_at_trx_commit=1 and sync_binlog=1 on the server"
            );
        }
        Ok(MyConnection { conn: Arc::new(Mutex::new(conn)), server, liveness, relay, _port: port })
    }

    /// Connects and logs in. If this fails, nothing was written.
    async fn log_in(&self, address: &Address, encrypts: bool) -> Result<Result<LoggedIn, Error>, StoreError> {
        let liveness = Arc::new(Liveness::new());
        let unreachable = |error| errors::unreachable(address, error);
        let (relay, port) = open_relay(address, liveness.clone()).await.map_err(unreachable)?;
        let number = port.local_addr().map_err(unreachable)?.port();
        let conn = Conn::new(self.options.driver(address, number, encrypts)).await;
        Ok(conn.map(|conn| (conn, liveness, relay, port)))
    }
}

/// Opens a socket to the server, and a port of this machine that the driver connects to.
///
/// The driver opens its socket itself, and does not expose it. So the store opens the socket, and passes its bytes on
/// through a port that accepts one connection. Another process of this machine that connects to the port before the
/// driver does gets a connection to the server, which it could also open itself, and the attempt of this store fails.
/// The port stays bound, so that no other process gets the connection of the driver. A unix socket of the server is not
/// relayed: there the server can take the user of this process for proof of who it is.
async fn open_relay(address: &Address, liveness: Arc<Liveness>) -> io::Result<(Relay, Arc<TcpListener>)> {
    let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    let port = listener.clone();
    let driver = async move {
        let (driver, _) = port.accept().await?;
        let _ = driver.set_nodelay(true);
        Ok(driver)
    };
    Ok((Relay::open(address, liveness, driver).await?, listener))
}

type LoggedIn = (Conn, Arc<Liveness>, Relay, Arc<TcpListener>);

/// If a host has not answered after this time, the next one is tried as well.
const HEAD_START: Duration = Duration::from_millis(250);

/// One connection to the server. It runs one batch of statements at a time, as the protocol requires.
pub(crate) struct MyConnection {
    conn: Arc<Mutex<Conn>>,
    pub(crate) server: Server,
    liveness: Arc<Liveness>,
    pub(crate) relay: Relay,
    /// Stays bound for as long as the connection is open.
    _port: Arc<TcpListener>,
}

impl Connection for MyConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// A batch that is not answered within this time ends its connection. It is longer than any wait for a lock.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

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
        let mut conn = self.conn.clone().lock_owned().await;
        let connection = self.clone();
        // A batch that is abandoned half-way would leave the connection unusable: so it runs in a task of its own.
        let batch = tokio::spawn(async move {
            let answer = tokio::time::timeout(ANSWER_WITHIN, run(&mut conn, sql)).await;
            let answer = answer.unwrap_or(Err(Failed::Unanswered));
            if answer.as_ref().is_err_and(Failed::ends_the_connection) {
                connection.close();
            }
            answer
        });
        let answer = batch.await.unwrap_or(Err(Failed::Unanswered));
        waiting.answered();
        // A new connection creates the tables if its user is allowed to.
        if answer.as_ref().is_err_and(Failed::is_missing_table) {
            self.liveness.doubt();
        }
        answer
    }

    /// Closes the connection at once. The fate of a batch in flight is unknown.
    pub(crate) fn close(&self) {
        self.liveness.close();
        self.relay.abort();
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
