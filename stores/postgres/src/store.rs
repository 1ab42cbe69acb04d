//! The store itself: what is asked of it becomes calls on one connection, or on a session.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Attended, Board, Change, Clock, DynBoard, Incarnation, Judge, Life, LifeKind, Note, NoteKind, Promises, Push,
    Reading, Record, Seat, SeatName, SeatStore, Seen, StoreError, Swap, Takeover, Version,
};
use tokio::sync::Semaphore;
use tokio_postgres::Config;

use crate::bells::{Bells, Watch};
use crate::board;
use crate::leases::{self, Glance, Reader};
use crate::line::Line;
use crate::link::{Dialer, Link};
use crate::options::{self, Mode, PostgresOptions};
use crate::seats::Mark;
use crate::sessions::Sessions;
use crate::waiting::Waiting;

/// Seats in a PostgreSQL database.
pub struct PostgresStore {
    line: Line,
    /// Only in `mode=session`.
    sessions: Option<SessionMode>,
    looks: Semaphore,
    clock: OnceLock<Clock>,
    schema: String,
}

struct SessionMode {
    sessions: Sessions,
    waiting: Waiting,
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
        let dialer = Arc::new(Dialer::new(config, options));
        let bells = Arc::new(Bells::default());
        let sessions = (mode == Mode::Session).then(|| SessionMode {
            sessions: Sessions::new(dialer.clone(), bells.clone(), lock_id),
            waiting: Waiting::new(dialer.clone(), bells.clone()),
        });
        let looks = Semaphore::new(LOOKS);
        Self { line: Line::new(dialer, bells), sessions, looks, clock: OnceLock::new(), schema }
    }

    fn clock(&self) -> Clock {
        self.clock.get().cloned().unwrap_or_default()
    }

    async fn glance(&self, link: &Arc<Link>, seat: &SeatName, reader: Reader) -> Result<Glance, StoreError> {
        match &self.sessions {
            None => leases::read(link, seat, reader).await,
            Some(mode) => mode.sessions.read(link, seat, reader).await,
        }
    }

    /// Resolves when there is something new to see. All but the long wait is boxed, as it takes much more room, and
    /// there may be many who wait.
    async fn news(&self, watch: &Watch<'_>, seat: &SeatName, seen: &Seen) {
        loop {
            match Box::pin(self.look_in_turn(watch, seat, seen)).await {
                Looked::News => return,
                Looked::Quiet => return watch.told().await,
                Looked::Deaf(pause) => {
                    if Box::pin(tokio::time::timeout(pause, watch.told())).await.is_ok() {
                        return;
                    }
                }
                Looked::Failed(pause) => return drop(Box::pin(tokio::time::timeout(pause, watch.told())).await),
            }
        }
    }

    async fn look_in_turn(&self, watch: &Watch<'_>, seat: &SeatName, seen: &Seen) -> Looked {
        let look = async {
            let _turn = self.looks.acquire().await;
            // Not before it is its turn.
            Box::pin(self.look(watch, seat, seen)).await
        };
        tokio::select! {
            biased;
            () = watch.told() => Looked::News,
            looked = look => looked,
        }
    }

    async fn look(&self, watch: &Watch<'_>, seat: &SeatName, seen: &Seen) -> Looked {
        let lease = seen.seat.as_ref().map_or(Duration::from_secs(1), |seat| seat.record.lease);
        let looked = async {
            let link = self.line.link().await?;
            let glance = self.glance(&link, seat, Reader::Watch).await?;
            Ok::<_, StoreError>((link, glance))
        };
        let Ok((link, Glance { reading, session, requested })) = looked.await else {
            return Looked::Failed(lease / 3);
        };
        let is_over =
            |seat: Option<&Seat>| seat.is_some_and(|seat| seat.life == Life::Over && !seat.record.is_vacant());
        let news = seen.differs_from(reading.seat.as_ref())
            || is_over(seen.seat.as_ref()) != is_over(reading.seat.as_ref())
            || (seen.requests && requested);
        if news {
            return Looked::News;
        }
        if link.server.pooled {
            return Looked::Deaf(lease / 3);
        }
        link.warm_up();
        if let (Some(mode), Some(holder)) = (&self.sessions, session)
            && !mode.sessions.is_own(holder)
        {
            // Once it is over, there is nothing more to wait for.
            if !is_over(reading.seat.as_ref()) {
                // Minded first, then waited for: an end in between is told.
                watch.mind(holder);
                mode.waiting.wait_for(holder, lease / 3);
            }
            mode.sessions.keep_ready(lease, self.clock());
        }
        Looked::Quiet
    }

    fn is_own(&self, session: i64) -> bool {
        self.sessions.as_ref().is_some_and(|mode| mode.sessions.is_own(session))
    }

    /// Whether a session of our own is over.
    fn is_over(&self, session: Option<i64>) -> bool {
        let Some((mode, session)) = self.sessions.as_ref().zip(session) else { return false };
        self.is_own(session) && mode.sessions.alive(session).is_none()
    }
}

/// What a watcher has found when it looked.
enum Looked {
    News,
    /// Nothing; it will be told.
    Quiet,
    /// Nothing; what cannot be heard must be looked for, after so long.
    Deaf(Duration),
    Failed(Duration),
}

/// So many watchers look at once: ten thousand may begin to watch together, and looking takes room.
const LOOKS: usize = 512;

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

impl SeatStore for PostgresStore {
    fn promises(&self) -> Promises {
        let common = Promises {
            push: Push::Proven,
            durability: DURABILITY,
            // A fifteenth of it is what a call is given.
            min_lease: Duration::from_millis(150),
            ..Promises::of("postgres")
        };
        match self.sessions {
            None => Promises {
                life: LifeKind::Clock,
                judge: Judge::Vouched,
                broken_by: &[
                    REPLICATION,
                    SIBLINGS,
                    UPGRADE,
                    NO_TIMELINE,
                    FSYNC,
                    TABLES,
                    "The server's clock is set back and then forward again within two leases, each time by more than a part of a lease (judge=observe does not rely on that clock).",
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

    fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let link = self.line.link().await?;
        Ok(self.glance(&link, seat, Reader::Call).await?.reading)
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        match &self.sessions {
            None => leases::swap(&self.line.link().await?, seat, expected, next).await,
            Some(mode) => mode.sessions.swap(seat, expected, next, self.clock()).await,
        }
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        match &self.sessions {
            None => leases::renew(&self.line.link().await?, seat, held, record).await,
            Some(mode) => mode.sessions.renew(seat, held).await,
        }
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let mark = seen.seat.as_ref().and_then(|seat| Mark::parse(&seat.version));
        let (nonce, session) = (mark.as_ref().and_then(Mark::number), mark.and_then(|mark| mark.session));
        // Listened for first, then looked: what changes in between is heard.
        let watch = self.line.bells.watch(seat, nonce, seen.requests);
        if let Some(session) = session.filter(|session| self.is_own(*session)) {
            watch.mind(session);
        }
        if !self.is_over(session) {
            self.news(&watch, seat, seen).await;
        }
        if self.is_over(session) { Change::SessionOver } else { Change::Look }
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        leases::forget(&self.line.link().await?, seat).await
    }

    #[cfg(unix)]
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.sessions.as_ref().map_or(Ok(None), |sessions| sessions.sessions.lifeline(seat))
    }
}

impl Board for PostgresStore {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        board::put(&self.line.link().await?, seat, note).await
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        board::attend(&self.line.link().await?, process, lifetime).await
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        board::list(&self.line.link().await?, seat, kind).await
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        board::remove(&self.line.link().await?, seat, kind, key).await
    }
}
