//! The store itself: what is asked of it becomes statements on one connection, or on that of a session.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Answers, BatchLimits, Board, Call, Clock, ClockTrust, DynNotes, Interest, InterestChange, LifeKind, News, Note,
    NoteState, NoteWrite, Notes, Promises, Push, Reading, Scope, SeatName, SessionId, Store, StoreError, Swap,
    Takeover, Version, Write,
};
use tenure_kit::{Connection, Reconnect};
use tokio_postgres::Config;

use crate::connection::{Connector, PgConnection, Purpose};
use crate::options::{self, Mode, PostgresOptions};
use crate::pushes::{self, Pushes};
use crate::seats::Mark;
use crate::sessions::Sessions;
use crate::{leases, notes};

/// Seats in a PostgreSQL database.
pub struct PostgresStore {
    connection: Reconnect<PgConnection>,
    /// Only in `mode=session`.
    sessions: Option<Sessions>,
    pushes: Pushes,
    schema: String,
}

impl PostgresStore {
    /// A store in this database. Nothing is connected before the first call.
    ///
    /// # Errors
    /// In one line, without the password, if the options cannot be.
    pub fn new(options: PostgresOptions) -> Result<Self, String> {
        let config = options.config()?;
        Ok(Self::made(config, options.with_url()?))
    }

    /// A store at this URL.
    ///
    /// # Errors
    /// In one line, without the password, if the URL cannot be read.
    pub fn at(url: &str) -> Result<Self, String> {
        Self::new(PostgresOptions::from_url(url)?)
    }

    /// A store with the driver's own configuration, and everything else from the options. Their `url` is
    /// not looked at, nor is the configuration's `ssl_mode`, as that knows of fewer.
    ///
    /// # Errors
    /// In one line, if the options cannot be.
    pub fn with_config(config: Config, options: PostgresOptions) -> Result<Self, String> {
        options::check(&config)?;
        Ok(Self::made(config, options.check()?))
    }

    fn made(config: Config, options: PostgresOptions) -> Self {
        let (mode, lock_id, schema) = (options.mode, options.lock_id, options.schema().to_owned());
        let connector = Arc::new(Connector::new(config, options));
        let pushes = Pushes::default();
        let sessions = (mode == Mode::Session).then(|| Sessions::new(connector.clone(), lock_id));
        let calls = pushes.clone();
        let connection = Reconnect::new(move || {
            let (connector, calls) = (connector.clone(), Purpose::Calls(calls.clone()));
            async move { connector.connect(calls).await }
        });
        Self { connection, sessions, pushes, schema }
    }

    /// Gets ready for the bids of those who follow, and waits for the sessions of their leaders. Never returns.
    async fn follow(&self, connection: &Arc<PgConnection>, interest: &Interest, news: &News) {
        match &self.sessions {
            None => {
                let has_seen =
                    |delta: &InterestChange| delta.wanted.as_ref().is_some_and(|wanted| wanted.seen.is_some());
                while !interest.next().await.iter().any(has_seen) {}
                leases::warm_up(connection).await;
                std::future::pending().await
            }
            Some(sessions) => sessions.follow(interest, news).await,
        }
    }
}

/// So many seats share a statement at the most: no other waits long for it to end. The next one of its kind is sent when
/// it has ended: the slower the server, the fewer statements it is asked for.
const TOGETHER: BatchLimits = BatchLimits { seats: 500, calls: 1 };

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = if self.sessions.is_some() { Mode::Session } else { Mode::Lease };
        f.debug_struct("PostgresStore").field("mode", &mode).field("schema", &self.schema).finish_non_exhaustive()
    }
}

const DURABILITY: &str =
    "a write is on the primary's disk before it counts (fsync=on), on a standby's only with synchronous replication";

const REPLICATION: &str = "A standby is promoted that had not received the last writes (asynchronous replication), and the old primary, or a leader that still talks to it, works on.";
const FSYNC: &str = "fsync=off, or a disk that lies about it, and the machine of the server crashes.";
const SIBLINGS: &str = "Of two standbys of one primary, the second is promoted without ever having followed the first one, which was promoted before: both are on the same timeline, so tokens of the first can be given out again.";
const UPGRADE: &str = "pg_upgrade of a database that had been promoted before: timelines begin at 1 again, so tokens that a standby had not received when it was promoted can be given out again, until the new timeline has passed the old one.";
const NO_TIMELINE: &str = "The role may not call pg_current_wal_lsn() or pg_walfile_name(), which is logged as a warning: a standby that is promoted is not noticed, and tokens that it had not received can be given out again.";
const LATE_BID: &str = "A bid reaches the server only after its election has stopped, in a process that goes on with other elections of the same lease: their session then holds the seat, and nobody leads until that process ends or stands for it again.";
const TABLES: &str = "The tables are removed, restored from a backup or edited by hand while candidates run.";

impl Store for PostgresStore {
    fn promises(&self) -> Promises {
        let common = Promises {
            push: Push::Proven,
            reads: TOGETHER,
            writes: TOGETHER,
            durability: DURABILITY,
            // A fifteenth of it is what a call is given.
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
                    "The server's clock is set back and then forward again within two leases, each time by more than a part of a lease (clock_trust=never does not rely on that clock).",
                ],
                ..common
            },
            Some(_) => Promises {
                life: LifeKind::Session,
                takeover: Takeover::Instant,
                shared_heartbeat: true,
                broken_by: &[
                    "A session is ended while its leader lives (pg_terminate_backend, a restart, a broken connection): another may lead until the news, which is usually there within milliseconds, or the end of its lease reaches the old one (takeover=safe waits that long).",
                    REPLICATION,
                    SIBLINGS,
                    UPGRADE,
                    NO_TIMELINE,
                    FSYNC,
                    TABLES,
                    "A pooler that hands on the process ids of its servers, so that it is not noticed.",
                    LATE_BID,
                ],
                ..common
            },
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.pushes.attach(news);
        if let Some(sessions) = &self.sessions {
            sessions.pool.attach(clock, Some(news));
        }
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        match &self.sessions {
            None => leases::read(&connection, seats, to).await,
            Some(sessions) => sessions.read(&connection, seats, to).await,
        }
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        match &self.sessions {
            None => leases::write(&self.connection.get().await?, writes, to).await,
            Some(sessions) => sessions.write(call.lease, writes, to).await,
        }
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        Mark::parse(version)?.session.map(pushes::name_of)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.pushes.attach(news);
        let connection = match self.connection.get().await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        // It listens since it was opened. Behind a pooler nothing is pushed, and the engine looks by itself.
        if !connection.server.pooled {
            news.listening(Scope::All);
        }
        tokio::select! {
            () = connection.liveness().closed() => {}
            () = self.follow(&connection, interest, news) => {}
        }
        StoreError::unknown("the connection that was listened to has ended, or does not answer")
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        leases::forget(&self.connection.get().await?, seat).await
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
