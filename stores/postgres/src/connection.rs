//! One connection to the server: logged in, past the handshake, and driven by its own task.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use socket2::Socket;
use tenure_core::StoreError;
use tenure_kit::sql::notes::warn_without_notes;
use tenure_kit::{Connection, Liveness, Patience, first_of, lock};
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connect::{self, Opened, Target};
use crate::errors::{self, Failed};
use crate::handshake::{self, Server};
use crate::notifications::Notifications;
use crate::options::PostgresOptions;
use crate::tls;

/// A parameter of a statement, with its type.
pub(crate) type Param = (Box<dyn ToSql + Send + Sync>, Type);

pub(crate) fn text(text: impl Into<String>) -> Param {
    (Box::new(text.into()), Type::TEXT)
}

pub(crate) fn texts(texts: Vec<String>) -> Param {
    (Box::new(texts), Type::TEXT_ARRAY)
}

pub(crate) fn number(number: i64) -> Param {
    (Box::new(number), Type::INT8)
}

pub(crate) fn numbers(numbers: Vec<i64>) -> Param {
    (Box::new(numbers), Type::INT8_ARRAY)
}

/// The purpose of a connection, which decides its settings.
pub(crate) enum Purpose {
    /// Serves all calls of the store, and receives notifications for the engine.
    Calls(Notifications),
    /// Holds seats of elections with this lease.
    Session(Duration),
    /// Waits for the sessions of other processes to end.
    Waiting,
}

/// Opens connections.
pub(crate) struct Connector {
    config: Config,
    pub(crate) options: PostgresOptions,
    /// Whether the warning about an unreadable timeline was logged.
    has_warned: AtomicBool,
    /// Whether the warning about a missing table of notes was logged.
    has_warned_of_notes: AtomicBool,
    /// Whether connections only read, and create no tables.
    read_only: AtomicBool,
}

impl Connector {
    pub(crate) fn new(mut config: Config, options: PostgresOptions) -> Self {
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        let [has_warned, has_warned_of_notes, read_only] = [const { AtomicBool::new(false) }; 3];
        Self { config, options, has_warned, has_warned_of_notes, read_only }
    }

    /// Makes all connections from now on read only.
    pub(crate) fn make_read_only(&self) {
        self.read_only.store(true, Ordering::Relaxed);
    }

    /// Connects to the first host that accepts writes.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<PgConnection, StoreError> {
        let tls = MakeRustlsConnect::new(tls::config(&self.options)?);
        let longest = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_WITHIN);
        first_of(Target::all(&self.config).iter(), HEAD_START, async |target| {
            let opened = tokio::time::timeout(longest, self.connect_to(target, &tls, &purpose)).await;
            opened.unwrap_or_else(|_| Err(errors::silent(target)))
        })
        .await
    }

    async fn connect_to(
        &self,
        target: &Target,
        tls: &MakeRustlsConnect,
        purpose: &Purpose,
    ) -> Result<PgConnection, StoreError> {
        let ssl = self.options.sslmode.unwrap_or_default();
        let Opened { client, connection, socket } = connect::log_in(&self.config, target, ssl, tls).await?;
        let liveness = Arc::new(Liveness::new());
        let notifications =
            if let Purpose::Calls(notifications) = purpose { Some(notifications.clone()) } else { None };
        let driver = Box::pin(drive(CloseOnDrop(liveness.clone()), connection, notifications));
        // If the handshake fails or is cancelled, the connection is dropped with this future.
        let (server, driver) = match select(pin!(self.handshake(&client, target, purpose)), driver).await {
            Either::Left((server, driver)) => (server?, tokio::spawn(driver).abort_handle()),
            Either::Right(((), greeting)) => return greeting.await.and(Err(errors::silent(target))),
        };
        let prepared = Mutex::default();
        Ok(PgConnection { client, server, liveness, driver, socket, prepared, turn: Arc::default() })
    }

    async fn handshake(&self, client: &Client, target: &Target, purpose: &Purpose) -> Result<Server, StoreError> {
        let read_only = self.read_only.load(Ordering::Relaxed);
        let server = handshake::handshake(client, target, self.options.schema(), read_only).await?;
        if !server.has_timeline && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %target,
                role = self.config.get_user().unwrap_or_default(),
                "cannot read the timeline: the promotion of a standby goes unnoticed, and tokens can be issued twice \
                 after it; grant this role EXECUTE on pg_current_wal_lsn() and pg_walfile_name(pg_lsn)"
            );
        }
        warn_without_notes(target, server.without_notes.as_ref(), &self.has_warned_of_notes);
        let version = server.version;
        let settings = match purpose {
            Purpose::Calls(_) if server.pooled => {
                tracing::info!("connected to PostgreSQL through a pooler: changes are polled, not pushed");
                return Ok(server);
            }
            _ if server.pooled => return Err(errors::pooler()),
            Purpose::Calls(_) => handshake::call_settings(self.options.schema()),
            Purpose::Session(lease) => handshake::session_settings(version, *lease),
            Purpose::Waiting => handshake::waiting_settings(version),
        };
        let read_only = if read_only { handshake::READ_ONLY } else { "" };
        client.batch_execute(&format!("{read_only}{settings}")).await.map_err(errors::statement_failed)?;
        Ok(server)
    }
}

/// Sends and receives until the connection ends. The driver closes the connection once the client is dropped and all
/// statements in flight are answered.
async fn drive(closing: CloseOnDrop, mut connection: connect::DriverConnection, notifications: Option<Notifications>) {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                closing.0.heard();
                if let Some(notifications) = &notifications {
                    notifications.on_notification(notification.payload());
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
                break;
            }
            None => break,
        }
    }
    drop(connection);
    drop(closing);
}

/// Marks the connection as closed when the task that drives it ends or is aborted.
struct CloseOnDrop(Arc<Liveness>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The time-out of connecting to one host, unless the URL has `connect_timeout`.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// If a host has not answered after this time, the next one is tried as well.
const HEAD_START: Duration = Duration::from_millis(250);

/// If a pooler does not answer a statement within this time, the connection is closed.
const POOLER_TIMEOUT: Duration = Duration::from_secs(30);

/// One connection to the server. Statements in flight when it is dropped are still sent.
pub(crate) struct PgConnection {
    client: Client,
    pub(crate) server: Server,
    liveness: Arc<Liveness>,
    driver: AbortHandle,
    pub(crate) socket: Arc<Socket>,
    prepared: Mutex<HashMap<String, Statement>>,
    /// Held during a statement behind a pooler, where only one statement can be in flight.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Connection for PgConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// A single call that times out may only be slow. If the server has been silent for twice as long as the call waited,
/// other calls timed out before it, and a new connection may work.
const PATIENCE: Patience = Patience { at_least: Duration::ZERO, times: 2 };

impl PgConnection {
    /// Runs one statement and returns its rows.
    ///
    /// If the future is dropped before the statement is sent, the statement is never sent. If it is dropped
    /// later, the statement runs to its end, statements that are sent later on this connection run after it, and
    /// the connection may become doubted.
    ///
    /// If a table is missing, the connection is closed, so that the next one creates it.
    pub(crate) async fn query(self: &Arc<Self>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let answer = self.answer(sql, params).await;
        if answer.as_ref().is_err_and(Failed::is_missing_table) {
            self.liveness.close();
        }
        answer
    }

    /// Runs one statement about notes, like [`query`](Self::query). If the table of notes is missing, the connection stays
    /// in use until another one is open, because seats do not need that table.
    pub(crate) async fn query_notes(self: &Arc<Self>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let answer = self.answer(sql, params).await;
        if answer.as_ref().is_err_and(Failed::is_missing_table) && self.server.without_notes.is_none() {
            self.liveness.doubt();
        }
        answer
    }

    async fn answer(self: &Arc<Self>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let waiting = self.liveness.waiting(PATIENCE);
        let answer = match self.server.pooled {
            true => self.query_pooler(sql, params).await,
            false => self.run(sql, &params).await,
        };
        waiting.answered();
        if answer.as_ref().is_err_and(Failed::ends_the_connection) {
            self.liveness.close();
        }
        answer
    }

    /// Runs a statement without a pooler in between. It is prepared the first time, which saves the server most
    /// of the work of later runs.
    pub(crate) async fn run(&self, sql: &str, params: &[Param]) -> Result<Vec<Row>, Failed> {
        let known = lock(&self.prepared).get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<_> = params.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await.map_err(Failed::Driver)?;
                lock(&self.prepared).insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let values: Vec<_> = params.iter().map(|(value, _)| &**value as &(dyn ToSql + Sync)).collect();
        self.client.query(&statement, &values).await.map_err(Failed::Driver)
    }

    /// Runs a statement through a pooler: unprepared, and only after the statement before it is answered, even if
    /// that call was dropped. PgBouncer before 1.22 assigns the server to another client as soon as one statement
    /// is answered, so the answer to a second statement in flight would go to that client.
    async fn query_pooler(self: &Arc<Self>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let turn = self.turn.clone().lock_owned().await;
        let (connection, sql) = (self.clone(), sql.to_owned());
        let query = tokio::spawn(async move {
            let _turn = turn;
            let params: Vec<_> =
                params.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
            let answer = tokio::time::timeout(POOLER_TIMEOUT, connection.client.query_typed(&sql, &params)).await;
            if answer.is_err() {
                connection.abort();
            }
            answer
        });
        match query.await {
            Ok(Ok(answer)) => answer.map_err(Failed::Driver),
            Ok(Err(_)) | Err(_) => Err(Failed::Unanswered),
        }
    }

    /// Runs several statements without parameters, and returns the first value of the last row.
    pub(crate) async fn text(&self, sql: &str) -> Result<Option<String>, StoreError> {
        let messages = self.client.simple_query(sql).await.map_err(errors::statement_failed)?;
        let rows = messages.iter().rev().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows.into_iter().next().and_then(|row| row.get(0)).map(str::to_owned))
    }

    /// Waits until the server has answered everything that was sent before, and is ready to send notifications.
    pub(crate) async fn ping(&self) {
        // If the connection is broken, the task that drives it closes it.
        let _ = self.client.check_connection().await;
    }

    /// Closes the connection at once. The fate of statements in flight is unknown.
    pub(crate) fn abort(&self) {
        self.driver.abort();
    }
}
