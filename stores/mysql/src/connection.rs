//! One connection to the server: logged in, and past the handshake.

use std::collections::HashSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Row};
use tenure_core::StoreError;
use tenure_kit::socket::{Address, Relay};
use tenure_kit::sql::notes::warn_without_notes;
use tenure_kit::sql::{BatchClient, BatchConnection};
use tenure_kit::{Liveness, first_of, lock};
use tokio::net::TcpListener;

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
    /// Whether the warning about a missing table of notes was logged.
    has_warned_of_notes: AtomicBool,
    /// Whether connections only read, and create no tables.
    read_only: AtomicBool,
    /// The servers that do not support TLS: TLS that is only preferred is not tried again with them.
    plain: Mutex<HashSet<String>>,
}

impl Connector {
    pub(crate) fn new(options: MysqlOptions) -> Self {
        let [has_warned, has_warned_of_notes, read_only] = [const { AtomicBool::new(false) }; 3];
        Self { options, has_warned, has_warned_of_notes, read_only, plain: Mutex::default() }
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
        let is_plain = ssl == SslMode::Preferred && lock(&self.plain).contains(&address.to_string());
        let encrypts = ssl != SslMode::Disabled && !is_plain;
        let opened = match self.log_in(address, encrypts).await? {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if ssl == SslMode::Preferred => {
                lock(&self.plain).insert(address.to_string());
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
        warn_without_notes(address, server.without_notes.as_ref(), &self.has_warned_of_notes);
        let creates_tables = server.without_notes.is_none();
        let connection = MyConnection::new(Client { conn, _port: port }, server, liveness, relay);
        Ok(connection.creates_tables(creates_tables))
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

/// One connection to the server. It runs one batch of statements, separated by semicolons, at a time and in one round trip.
/// The server executes them in order, and stops at the first one that fails.
pub(crate) type MyConnection = BatchConnection<Client, Server>;

pub(crate) struct Client {
    conn: Conn,
    /// Stays bound for as long as the connection is open.
    _port: Arc<TcpListener>,
}

impl BatchClient for Client {
    type Batch = String;
    type Results = Results;
    type Error = Failed;

    async fn run(&mut self, sql: String) -> Result<Results, Failed> {
        run(&mut self.conn, sql).await
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
