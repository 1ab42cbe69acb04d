//! The store: turns the engine's calls into statements.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Answers, BatchLimits, Board, Call, Clock, ClockTrust, ConfigError, DynNotes, Interest, LifeKind, News, Note,
    NoteState, NoteWrite, Notes, Promises, Push, Reading, SeatName, SessionId, Store, StoreError, Swap, Takeover,
    Version, Write,
};
use tenure_kit::sql::{self, Connections};

use crate::connection::Connector;
use crate::options::MysqlOptions;
use crate::{leases, notes};

/// A store that keeps seats in the tables of a MySQL or MariaDB database.
///
/// The store connects at the engine's first call, and again after a connection is lost. Elections of one process
/// should share one store: they then share its connection and statements. [`Mode`](crate::Mode) says how seats are held.
pub struct MysqlStore {
    connections: Connections<Connector>,
    connector: Arc<Connector>,
}

impl MysqlStore {
    /// Creates a store for the database that the options name. Does not connect: a server that cannot be reached shows
    /// at the first call.
    ///
    /// # Errors
    /// Returns one line, without the password, if the options are invalid or contradict each other.
    pub fn new(options: MysqlOptions) -> Result<Self, ConfigError> {
        options.check()?;
        let mode = options.mode;
        let connector = Arc::new(Connector::new(options));
        let connect = |connector: Arc<Connector>| async move { connector.connect().await };
        Ok(Self { connections: Connections::new(connector.clone(), mode, connect), connector })
    }

    /// Creates a store for the database at this URL. See [`MysqlOptions::from_url`] for its parameters.
    ///
    /// # Errors
    /// Returns one line, without the password, if the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(MysqlOptions::from_url(url)?)
    }

    /// Makes the store read only: its user needs only `SELECT` on the tables, and the store creates no tables. Tables
    /// that do not exist have no elections. For status pages and tools; candidates cannot stand over it, as the server
    /// denies every write.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.connector.make_read_only();
        self
    }
}

/// At most 500 seats share a statement, so that it ends soon. At most one statement of each kind is in flight, so that a
/// slow server gets fewer and larger statements.
const LIMITS: BatchLimits = BatchLimits { seats: 500, calls: 1 };

impl std::fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options = &self.connector.options;
        f.debug_struct("MysqlStore")
            .field("mode", &options.mode)
            .field("database", &options.database)
            .field("table_prefix", &options.table_prefix)
            .finish_non_exhaustive()
    }
}

const DURABILITY: &str = "a write is on the primary's disk before it counts (innodb_flush_log_at_trx_commit=1, and sync_binlog=1 if it has a binary log); on a replica's disk only with semi-synchronous replication";

const REPLICATION: &str = "A replica that lacks the last writes is promoted, while the old primary, or a leader connected to it, keeps running.";
const LOSS: &str = "A candidate starts just after the server has lost writes (a replica that lagged behind was promoted, or the tables were dropped, restored or edited): it cannot know what was lost, and can bid at once. Candidates that were already running wait a lease.";
const FLUSH: &str = "The server crashes with innodb_flush_log_at_trx_commit other than 1, or with a binary log and sync_binlog other than 1 (a warning is logged), or with a disk that reports writes as synced too early.";
const CLOCK_BACK: &str = "The server's clock is set back across a loss of data, or the clock of the server that takes over is behind by more than the failover took: a token that was lost can be issued again.";
const SAME_NAME: &str = "MariaDB: two servers have the same server_id, hostname and port, or MySQL: the same server_uuid, so that a failover from one to the other goes unnoticed.";

impl Store for MysqlStore {
    fn promises(&self) -> Promises {
        let common = Promises {
            reads: LIMITS,
            writes: LIMITS,
            durability: DURABILITY,
            // A call times out after a fifteenth of the lease: here 10 ms.
            min_lease: Duration::from_millis(150),
            ..Promises::of("mysql")
        };
        match self.connections.sessions() {
            None => Promises {
                life: LifeKind::Clock,
                clock_trust: ClockTrust::Vouched,
                broken_by: &[
                    REPLICATION,
                    LOSS,
                    CLOCK_BACK,
                    SAME_NAME,
                    FLUSH,
                    "The server's clock is set back and then forward again within two leases, each time by a considerable part of a lease (clock_trust=never does not rely on that clock).",
                ],
                ..common
            },
            Some(_) => Promises {
                life: LifeKind::Session,
                takeover: Takeover::Instant,
                lifeline: cfg!(unix),
                push: Push::Hint,
                shared_heartbeat: true,
                broken_by: &[
                    "A session ends while its leader lives (KILL, a restart, a broken connection): two candidates can lead at once until the old leader notices, usually within milliseconds and at the latest at the end of its lease (takeover=safe waits that long).",
                    REPLICATION,
                    LOSS,
                    CLOCK_BACK,
                    SAME_NAME,
                    FLUSH,
                    "A proxy passes on the connection ids of its servers, so that it is not detected.",
                ],
                ..common
            },
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        if let Some(sessions) = self.connections.sessions() {
            sessions.attach(clock, news);
        }
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let (connection, mode) = (&self.connections.get(Some(call.lease)).await?, self.connector.options.mode);
        let Some(sessions) = self.connections.sessions() else {
            return leases::read(connection, mode, seats, to).await;
        };
        let read = |seats: Vec<SeatName>, to| async move { leases::read(connection, mode, &seats, &to).await };
        sessions.read(seats, to, read).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        match self.connections.sessions() {
            None => leases::write(&self.connections.get(None).await?, writes, to).await,
            Some(sessions) => sessions.write(call.lease, writes, to).await,
        }
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        sql::session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        // The watch never says that it listens: a seat that is taken, and a request, notify no process. So the engine
        // polls, and a release lock only wakes it earlier.
        match self.connections.sessions() {
            Some(sessions) => sessions.follow(interest, news, None).await,
            None => std::future::pending().await,
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        leases::forget(&self.connections.get(None).await?, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        leases::list(&self.connections.get(None).await?).await
    }

    #[cfg(unix)]
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.connections.sessions().map_or(Ok(None), |sessions| sessions.lifeline(seat))
    }
}

impl Notes for MysqlStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        notes::write(&self.connections.get(None).await?, notes, to).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        notes::list(&self.connections.get(None).await?, boards, to).await
    }
}
