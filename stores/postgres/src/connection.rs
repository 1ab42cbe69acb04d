//! One connection that works: logged in, greeted, and driven by a task of its own.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use socket2::Socket;
use tenure_core::{Fault, StoreError};
use tenure_kit::{Connection, Liveness, Patience, lock};
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connect::{self, Opened, Target};
use crate::errors::{self, Failed};
use crate::handshake::{self, Server};
use crate::options::PostgresOptions;
use crate::pushes::Pushes;
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

/// What a connection is for.
pub(crate) enum Purpose {
    /// All calls of a store. What is pushed goes to the engine.
    Calls(Pushes),
    /// To hold seats of elections with this lease.
    Session(Duration),
    /// To wait for the sessions of others to end.
    Waiting,
}

/// How to get a connection.
pub(crate) struct Connector {
    config: Config,
    options: PostgresOptions,
    /// It was logged that the timeline cannot be read.
    has_warned: AtomicBool,
}

impl Connector {
    pub(crate) fn new(mut config: Config, options: PostgresOptions) -> Self {
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        Self { config, options, has_warned: AtomicBool::new(false) }
    }

    /// A connection to the first host that can be written to.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<PgConnection, StoreError> {
        let tls = MakeRustlsConnect::new(tls::config(&self.options).map_err(StoreError::denied)?);
        let longest = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_WITHIN);
        let mut problem = StoreError::denied("no host is named");
        for target in Target::all(&self.config) {
            let opened = tokio::time::timeout(longest, self.connect_to(&target, &tls, &purpose)).await;
            // Nothing has happened; but it is told as a call is that was given up for the same reason, so
            // that a server which does not answer is one piece of news and not two.
            match opened.unwrap_or_else(|_| Err(errors::silent(&target))) {
                Ok(connection) => return Ok(connection),
                // Rather one that may mend by itself.
                Err(error) if problem.fault() == Fault::Denied => problem = error,
                Err(_) => {}
            }
        }
        Err(problem)
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
        let pushes = if let Purpose::Calls(pushes) = purpose { Some(pushes.clone()) } else { None };
        let driver = Box::pin(drive(Closing(liveness.clone()), connection, pushes));
        // What was opened is dropped with this, if the greeting fails or is given up.
        let (server, driver) = match select(pin!(self.handshake(&client, target, purpose)), driver).await {
            Either::Left((server, driver)) => (server?, tokio::spawn(driver).abort_handle()),
            Either::Right(((), greeting)) => return greeting.await.and(Err(errors::silent(target))),
        };
        let prepared = Mutex::default();
        Ok(PgConnection { client, server, liveness, driver, socket, prepared, turn: Arc::default() })
    }

    async fn handshake(&self, client: &Client, target: &Target, purpose: &Purpose) -> Result<Server, StoreError> {
        let server = handshake::handshake(client, target, self.options.schema()).await?;
        if !server.tells_timeline && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %target,
                role = self.config.get_user().unwrap_or_default(),
                "the timeline cannot be read, so a standby that is promoted is not noticed, and tokens may be given out \
                 twice after that; let the role execute pg_current_wal_lsn() and pg_walfile_name(pg_lsn)"
            );
        }
        let version = server.version;
        let settings = match purpose {
            Purpose::Calls(_) if server.pooled => {
                tracing::info!("there is a pooler before PostgreSQL: changes are looked for, not listened to");
                return Ok(server);
            }
            _ if server.pooled => return Err(errors::pooler()),
            Purpose::Calls(_) => handshake::call_settings(self.options.schema()),
            Purpose::Session(lease) => handshake::session_settings(version, *lease),
            Purpose::Waiting => handshake::waiting_settings(version),
        };
        client.batch_execute(&settings).await.map_err(errors::of_statement)?;
        Ok(server)
    }
}

/// Sends and receives until the connection ends. It does so by itself, with a goodbye, once the client is dropped and
/// what is on its way was answered.
async fn drive(closing: Closing, mut connection: connect::Driven, pushes: Option<Pushes>) {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                pushes.iter().for_each(|pushes| pushes.heard(notification.payload()));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
                break;
            }
            None => break,
        }
    }
    drop(connection);
    drop(closing);
}

/// Dropped with what drives a connection, whatever ends that.
struct Closing(Arc<Liveness>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// How long a connection may take, unless the URL says otherwise (`connect_timeout`).
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// A statement that a pooler has not answered after so long is of no use to anybody, and neither is the connection.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// One connection that works. When it is dropped, what is on its way is still sent.
pub(crate) struct PgConnection {
    client: Client,
    pub(crate) server: Server,
    liveness: Arc<Liveness>,
    driver: AbortHandle,
    socket: Arc<Socket>,
    prepared: Mutex<HashMap<String, Statement>>,
    /// Whose statement is under way, where there can be only one.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Connection for PgConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

/// One call that was given up may have been slow. When nothing was heard for twice as long as that, it was not the
/// first, and another connection may do better.
const PATIENCE: Patience = Patience { at_least: Duration::ZERO, times: 2 };

impl PgConnection {
    /// Runs one statement and waits for its rows.
    ///
    /// If this is dropped before the statement was sent, it never is. If it is dropped later, the statement goes on,
    /// and what is asked next over this connection comes after it; the connection may be doubted.
    pub(crate) async fn ask(self: &Arc<Self>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let waiting = self.liveness.waiting(PATIENCE);
        let answer = if self.server.pooled { self.ask_pooler(sql, params).await } else { self.run(sql, &params).await };
        waiting.answered();
        if answer.as_ref().is_err_and(Failed::ends_the_connection) {
            self.liveness.close();
        }
        answer
    }

    /// Where a session is ours alone, a statement is prepared the first time, which spares the server most of
    /// the work.
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

    /// Through a pooler, a statement goes out whole, in one message, and only when the one before it was answered,
    /// whether or not anybody still waits for that: PgBouncer before 1.22 hands a server on as soon as that has
    /// answered one statement, and the answer to the next goes to somebody else.
    async fn ask_pooler(self: &Arc<Self>, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let turn = self.turn.clone().lock_owned().await;
        let (connection, sql) = (self.clone(), sql.to_owned());
        let asked = tokio::spawn(async move {
            let _turn = turn;
            let params: Vec<_> =
                params.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
            let answer = tokio::time::timeout(GIVEN_UP, connection.client.query_typed(&sql, &params)).await;
            if answer.is_err() {
                connection.cut();
            }
            answer
        });
        match asked.await {
            Ok(Ok(answer)) => answer.map_err(Failed::Driver),
            Ok(Err(_)) | Err(_) => Err(Failed::Unanswered),
        }
    }

    /// Runs several statements without parameters, and returns the first value of the last row.
    pub(crate) async fn text(&self, sql: &str) -> Result<Option<String>, StoreError> {
        let messages = self.client.simple_query(sql).await.map_err(errors::of_statement)?;
        let rows = messages.iter().rev().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows.into_iter().next().and_then(|row| row.get(0)).map(str::to_owned))
    }

    /// A duplicate of the socket: the connection stays open as long as a process has one, if this process is
    /// killed.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Ends the connection at once, whatever is on its way.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }
}
