//! The store: turns the engine's calls into statements, on the shared connection or on that of a session.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Answers, BatchLimits, Board, Call, Clock, ClockTrust, ConfigError, DynNotes, Interest, LifeKind, News, Note,
    NoteState, NoteWrite, Notes, Promises, Push, Reading, Scope, SeatName, SessionId, Store, StoreError, Swap,
    Takeover, Version, Write,
};
use tenure_kit::sql::{self, SeatLocks};
use tenure_kit::{Connection, Reconnect};
use tokio_postgres::Config;

use crate::connection::{Connector, PgConnection, Purpose};
use crate::notifications::Notifications;
use crate::options::{self, Mode, PostgresOptions};
use crate::{errors, leases, notes};

/// A store that keeps seats in the tables of a PostgreSQL database.
///
/// The store connects at the engine's first call, and again after a connection is lost. Elections of one process
/// should share one store: they then share its connections and statements. [`Mode`] says how seats are held.
pub struct PostgresStore {
    connection: Reconnect<PgConnection>,
    /// Only in `mode=session`.
    sessions: Option<SeatLocks<Connector>>,
    /// The only seat that the `lock_id` of the options is used for.
    lock_id_seat: OnceLock<SeatName>,
    notifications: Notifications,
    schema: String,
    connector: Arc<Connector>,
}

impl PostgresStore {
    /// Creates a store for the database that the options name. Does not connect: a server that cannot be reached
    /// shows at the first call.
    ///
    /// # Errors
    /// Returns one line, without the password, if the options are invalid or contradict each other.
    pub fn new(options: PostgresOptions) -> Result<Self, ConfigError> {
        let config = options.config()?;
        Ok(Self::build(config, options.with_url()?))
    }

    /// Creates a store for the database at this URL. See [`PostgresOptions::from_url`] for its parameters.
    ///
    /// # Errors
    /// Returns one line, without the password, if the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(PostgresOptions::from_url(url)?)
    }

    /// Creates a store that connects with a configuration of the driver. Use it where the program already has one.
    ///
    /// Everything else comes from the options, and a password in the options replaces that of the configuration. Two
    /// settings are ignored: the `url` of the options, and the `ssl_mode` of the configuration, which has fewer modes
    /// than [`SslMode`](crate::SslMode).
    ///
    /// # Errors
    /// Returns one line if the configuration names no host, or the options are invalid.
    pub fn with_config(mut config: Config, options: PostgresOptions) -> Result<Self, ConfigError> {
        options::check(&config)?;
        if let Some(password) = &options.password {
            config.password(password);
        }
        Ok(Self::build(config, options.check()?))
    }

    fn build(config: Config, options: PostgresOptions) -> Self {
        let (mode, schema) = (options.mode(), options.schema().to_owned());
        let connector = Arc::new(Connector::new(config, options));
        let notifications = Notifications::default();
        let sessions = (mode == Mode::Session).then(|| SeatLocks::new(connector.clone()));
        let (calls, opens) = (notifications.clone(), connector.clone());
        let connection = Reconnect::new(move || {
            let (connector, calls) = (opens.clone(), Purpose::Calls(calls.clone()));
            async move { connector.connect(calls).await }
        });
        Self { connection, sessions, lock_id_seat: OnceLock::new(), notifications, schema, connector }
    }

    /// Makes the store read only: its role needs only `USAGE` on the schema and `SELECT` on the tables, and the store
    /// creates no tables. Tables that do not exist have no elections. For status pages and tools; candidates cannot
    /// stand over it, as the server denies every write.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.connector.make_read_only();
        self
    }

    /// Prepares for bids on the seats that this process follows. In `mode=session`, also waits for the sessions of
    /// their leaders to end.
    async fn follow(&self, connection: &Arc<PgConnection>, interest: &Interest, news: &News) -> StoreError {
        match &self.sessions {
            None => {
                let mut is_warm = false;
                loop {
                    for wanted in interest.next().await.into_iter().filter_map(|delta| delta.wanted) {
                        connection.liveness().limit_silence(wanted.lease / 3);
                        if wanted.seen.is_some() && !is_warm {
                            leases::warm_up(connection).await;
                            is_warm = true;
                        }
                    }
                }
            }
            Some(sessions) => sessions.follow(interest, news, Some(connection.liveness())).await,
        }
    }
}

/// At most 500 seats share a statement, so that it ends soon. At most one statement of each kind is in flight, so
/// that a slow server gets fewer and larger statements.
const LIMITS: BatchLimits = BatchLimits { seats: 500, calls: 1 };

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = if self.sessions.is_some() { Mode::Session } else { Mode::Lease };
        f.debug_struct("PostgresStore").field("mode", &mode).field("schema", &self.schema).finish_non_exhaustive()
    }
}

const DURABILITY: &str = "a write is on the primary's disk before it counts (fsync=on); on a standby's disk only with synchronous replication";

const REPLICATION: &str = "A standby that lacks the last writes is promoted (asynchronous replication), while the old primary, or a leader connected to it, keeps running.";
const FSYNC: &str =
    "The server's machine crashes with fsync=off, or with a disk that reports writes as synced too early.";
const SIBLINGS: &str = "Two standbys of one primary are promoted one after the other, and the second never followed the first: both are on the same timeline, so tokens of the first can be issued again.";
const UPGRADE: &str = "pg_upgrade runs on a database that was promoted before: timelines restart at 1, so after a later promotion, tokens that the standby had not received can be issued again, until the new timeline exceeds the old one.";
const NO_TIMELINE: &str = "The role is not allowed to call pg_current_wal_lsn() or pg_walfile_name() (a warning is logged): the promotion of a standby goes unnoticed, and tokens that the standby had not received can be issued again.";
const TABLES: &str = "The tables are dropped, restored from a backup or edited by hand while candidates run.";

impl Store for PostgresStore {
    fn promises(&self) -> Promises {
        let common = Promises {
            push: Push::Proven,
            reads: LIMITS,
            writes: LIMITS,
            durability: DURABILITY,
            // A call times out after a fifteenth of the lease: here 10 ms.
            min_lease: Duration::from_millis(150),
            ..Promises::of("postgres")
        };
        match self.sessions {
            None => Promises {
                life: LifeKind::Clock,
                clock_trust: ClockTrust::Vouched,
                broken_by: &[
                    REPLICATION,
                    SIBLINGS,
                    UPGRADE,
                    NO_TIMELINE,
                    FSYNC,
                    TABLES,
                    "The server's clock is set back and then forward again within two leases, each time by a considerable part of a lease (clock_trust=never does not rely on that clock).",
                ],
                ..common
            },
            Some(_) => Promises {
                life: LifeKind::Session,
                takeover: Takeover::Instant,
                lifeline: cfg!(unix),
                shared_heartbeat: true,
                broken_by: &[
                    "A session ends while its leader lives (pg_terminate_backend, a restart, a broken connection): two candidates can lead at once until the old leader notices, usually within milliseconds and at the latest at the end of its lease (takeover=safe waits that long).",
                    REPLICATION,
                    SIBLINGS,
                    UPGRADE,
                    NO_TIMELINE,
                    FSYNC,
                    TABLES,
                    "A connection pooler passes on the process ids of its servers, so that it is not detected.",
                ],
                ..common
            },
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.notifications.attach(news);
        if let Some(sessions) = &self.sessions {
            sessions.attach(clock, news);
        }
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let (mode, lock_id) = (self.connector.options.mode(), self.connector.options.lock_id);
        let Some(sessions) = &self.sessions else {
            return leases::read(&connection, mode, lock_id, seats, to).await;
        };
        if connection.server.pooled {
            return Err(errors::pooler());
        }
        let connection = &connection;
        let read = |seats: Vec<SeatName>, to| async move { leases::read(connection, mode, lock_id, &seats, &to).await };
        sessions.read(seats, to, read).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let Some(sessions) = &self.sessions else {
            return leases::write(&self.connection.get().await?, writes, to).await;
        };
        let is_other = |write: &Write| *self.lock_id_seat.get_or_init(|| write.seat.clone()) != write.seat;
        if self.connector.options.lock_id.is_some() && writes.iter().any(is_other) {
            return Err(errors::one_lock().caused_by_one());
        }
        sessions.write(call.lease, writes, to).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        sql::session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.notifications.attach(news);
        let connection = match self.connection.get().await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        // The connection listens since it was opened. Behind a pooler nothing is pushed, and the engine polls.
        let is_pushed = !connection.server.pooled;
        if is_pushed {
            news.listening(Scope::All);
        }
        tokio::select! {
            () = connection.liveness().closed() => {}
            () = connection.liveness().fell_silent(|| connection.ping()), if is_pushed => {}
            error = self.follow(&connection, interest, news) => return error,
        }
        StoreError::unknown("the watch ended: its connection was closed, or the server does not answer")
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        leases::forget(&self.connection.get().await?, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        leases::list(&self.connection.get().await?).await
    }

    #[cfg(unix)]
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.sessions.as_ref().map_or(Ok(None), |sessions| sessions.lifeline(seat))
    }
}

impl Notes for PostgresStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        notes::write(&self.connection.get().await?, notes, to).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        notes::list(&self.connection.get().await?, boards, to).await
    }
}
