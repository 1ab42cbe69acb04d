//! One connection that works: logged in, greeted, and driven by a task of its own.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::Socket;
use tenure_core::{Fault, StoreError};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::bells::Bells;
use crate::dial::{self, Target};
use crate::gather::{self, Call, Gather};
use crate::hello::{self, PLANS, Server};
use crate::options::{Mode, PostgresOptions, SslMode};
use crate::{board, faults, leases, locks, lone, schema, tls};

/// The parameters of a statement, with their types.
pub(crate) type Params<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// How to get a connection.
pub(crate) struct Dialer {
    pub(crate) config: Config,
    pub(crate) schema: String,
    ssl: SslMode,
    options: PostgresOptions,
    /// It was logged that the timeline cannot be read.
    has_warned: AtomicBool,
}

impl Dialer {
    pub(crate) fn new(mut config: Config, options: PostgresOptions) -> Self {
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        let (schema, ssl) = (options.schema().to_owned(), options.sslmode.unwrap_or_default());
        Self { config, schema, ssl, options, has_warned: AtomicBool::new(false) }
    }

    /// A connection to the first host that can be written to. `bells` are rung by what it hears.
    pub(crate) async fn dial(&self, bells: Option<Arc<Bells>>) -> Result<Link, StoreError> {
        let tls = tls::connector(&self.options)?;
        let longest = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_WITHIN);
        let mut problem = StoreError::denied("no host is named");
        for target in Target::all(&self.config) {
            let opened = tokio::time::timeout(longest, self.dial_one(&target, tls.as_ref(), bells.clone())).await;
            // Nothing has happened; but it is told as a call is that was given up for the same reason, so
            // that a server which does not answer is one piece of news and not two.
            match opened.unwrap_or_else(|_| Err(faults::silent(&target))) {
                Ok(link) => return Ok(link),
                // Rather one that may mend by itself.
                Err(error) if problem.fault() == Fault::Denied => problem = error,
                Err(_) => {}
            }
        }
        Err(problem)
    }

    async fn dial_one(
        &self,
        target: &Target,
        tls: Option<&MakeRustlsConnect>,
        bells: Option<Arc<Bells>>,
    ) -> Result<Link, StoreError> {
        let dial::Dialed { client, mut connection, process, socket } =
            dial::dial(&self.config, target, self.ssl, tls).await?;
        let (closed, is_closed) = watch::channel(false);
        let ring = bells.clone();
        let driver = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        if let Some(bells) = &ring {
                            bells.ring(notification.payload());
                        }
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
            let _ = closed.send(true);
        })
        .abort_handle();
        // Ended with what was opened, if the greeting fails or is dropped.
        let guard = Ending(Some(driver));
        let server = hello::greet(&client, target, &process, &self.schema).await?;
        if !server.tells_timeline && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %target,
                role = self.config.get_user().unwrap_or_default(),
                "the timeline cannot be read, so a standby that is promoted is not noticed, and tokens may be given out \
                 twice after that; let the role execute pg_current_wal_lsn() and pg_walfile_name(pg_lsn)"
            );
        }
        if bells.is_some() && !server.pooled {
            let channel = schema::quoted(&schema::channel(&self.schema));
            // A row that somebody else has locked holds up one call, not all that come behind it; and what
            // nobody waits for any more does not stay on the server.
            let settings = format!("SET lock_timeout = 500; SET statement_timeout = 10000; {PLANS} LISTEN {channel}");
            client.batch_execute(&settings).await.map_err(faults::of_statement)?;
        }
        Ok(Link {
            client,
            server,
            is_closed,
            is_shared: bells.is_some(),
            sessions: self.options.mode == Mode::Session,
            gathers: Gathers::default(),
            doubted: AtomicBool::new(false),
            is_warm: AtomicBool::new(false),
            quiet_since: Mutex::default(),
            driver: guard,
            socket,
            prepared: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }
}

/// How long a connection may take, unless the URL says otherwise (`connect_timeout`).
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Where calls wait for each other, by their kind.
#[derive(Default)]
pub(crate) struct Gathers {
    pub(crate) read: Gather<leases::Read>,
    pub(crate) insert: Gather<leases::Insert>,
    pub(crate) update: Gather<leases::Update>,
    pub(crate) renew: Gather<leases::Renew>,
    pub(crate) locked_insert: Gather<locks::LockedInsert>,
    pub(crate) locked_update: Gather<locks::LockedUpdate>,
    pub(crate) put: Gather<board::Put>,
    pub(crate) list: Gather<board::List>,
    pub(crate) remove: Gather<board::Remove>,
    pub(crate) lone: Gather<lone::Lone>,
}

/// One connection that works.
pub(crate) struct Link {
    client: Client,
    pub(crate) server: Server,
    is_closed: watch::Receiver<bool>,
    /// Whether it is the one that a store asks over, and not that of a session.
    pub(crate) is_shared: bool,
    /// Whether seats are held by sessions.
    pub(crate) sessions: bool,
    pub(crate) gathers: Gathers,
    /// Calls were given up one after the other, and nothing was heard meanwhile.
    doubted: AtomicBool,
    is_warm: AtomicBool,
    /// Since when there are calls, and nothing is heard.
    quiet_since: Mutex<Option<Instant>>,
    driver: Ending,
    socket: Arc<Socket>,
    prepared: Mutex<HashMap<String, Statement>>,
    /// Whose statement is under way, where there can be only one.
    turn: tokio::sync::Mutex<()>,
}

struct Ending(Option<AbortHandle>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(driver) = self.0.take() {
            driver.abort();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The driver says goodbye by itself once the client is gone, and what is on its way is still
        // sent; it must not be cut off before that.
        self.driver.0 = None;
    }
}

impl Link {
    /// Makes a call, together with others of its kind. If this is dropped before it is answered, and was
    /// not the first, the connection is doubted.
    pub(crate) async fn call<C: Call>(self: &Arc<Self>, call: C) -> Result<C::Answer, StoreError> {
        let doubt = Doubt::of(self);
        let answer = gather::call(self, call).await;
        std::mem::forget(doubt);
        answer
    }

    /// Has the server get to know the statement of a bid, once, before there is one to make: that takes several
    /// times as long as the bid itself.
    pub(crate) fn warm_up(self: &Arc<Self>) {
        if !self.sessions && !self.server.pooled && !self.is_warm.swap(true, Ordering::Relaxed) {
            let link = self.clone();
            tokio::spawn(async move { tokio::time::timeout(CONNECT_WITHIN, leases::Update::run(&link, &[])).await });
        }
    }

    /// Runs one statement on a session of our own and waits for its rows. If this is dropped before that, and
    /// was not the first, the connection is doubted.
    pub(crate) async fn query(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, StoreError> {
        let doubt = Doubt::of(self);
        let answer = self.ask(sql, params).await;
        std::mem::forget(doubt);
        answer.map_err(faults::of_statement)
    }

    /// The same for those who may stop waiting at any time and for any reason: that tells nothing about the
    /// connection.
    pub(crate) async fn ask(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        let answer = self.run(sql, params).await;
        *self.quiet_since() = None;
        let is_over = answer.as_ref().is_err_and(faults::ends_the_connection);
        self.doubted.store(is_over, Ordering::Relaxed);
        answer
    }

    /// Where a session is ours alone, a statement is prepared the first time, which spares the server most of
    /// the work. Through a pooler, each goes out whole, in one message, and only when the one before it was
    /// answered: PgBouncer before 1.22 hands a server on as soon as that has answered one statement, and the
    /// answer to the next goes to somebody else.
    async fn run(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.server.pooled {
            let _turn = self.turn.lock().await;
            return self.client.query_typed(sql, params).await;
        }
        let known = self.prepared().get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<_> = params.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await?;
                self.prepared().insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    fn prepared(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        self.prepared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn quiet_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.quiet_since.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs several statements without parameters.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).await.map_err(faults::of_statement)
    }

    /// Runs several statements without parameters, and returns the first value of the last row.
    pub(crate) async fn text(&self, sql: &str) -> Result<Option<String>, StoreError> {
        let messages = self.client.simple_query(sql).await.map_err(faults::of_statement)?;
        let rows = messages.iter().rev().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows.into_iter().next().and_then(|row| row.get(0)).map(str::to_owned))
    }

    /// Whether another call may be made on it.
    pub(crate) fn is_good(&self) -> bool {
        !self.doubted.load(Ordering::Relaxed) && !self.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        // The one who would tell is gone, too, when the runtime is.
        *self.is_closed.borrow() || self.is_closed.has_changed().is_err() || self.client.is_closed()
    }

    /// Resolves when the connection has ended.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_closed = self.is_closed.clone();
        async move {
            let _ = is_closed.wait_for(|closed| *closed).await;
        }
    }

    /// A duplicate of the socket: the connection stays open as long as a process has one, if this process is
    /// killed.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Ends the connection at once, whatever is on its way.
    pub(crate) fn cut(&self) {
        if let Some(driver) = &self.driver.0 {
            driver.abort();
        }
    }
}

/// Somebody waits for an answer. Dropped, it has given up.
struct Doubt<'a> {
    link: &'a Link,
    began: Instant,
}

impl<'a> Doubt<'a> {
    fn of(link: &'a Link) -> Self {
        let began = Instant::now();
        link.quiet_since().get_or_insert(began);
        Self { link, began }
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        // One that was given up may have been slow. When nothing was heard for twice as long as that, it was
        // not the first, and another connection may do better.
        let quiet = self.link.quiet_since().map(|since| since.elapsed());
        if quiet.is_some_and(|quiet| quiet >= 2 * self.began.elapsed()) {
            self.link.doubted.store(true, Ordering::Relaxed);
        }
    }
}
