//! The store itself: each call becomes one act of the worker's next transaction.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Attended, Board, Change, Clock, DynBoard, Incarnation, Judge, Life, LifeKind, Lifeline, Note, NoteKind, Promises,
    Push, Reading, Record, Seat, SeatName, SeatStore, Seen, StoreError, Swap, Takeover, Version,
};

use crate::bells::Bells;
use crate::liveness::Liveness;
use crate::place::{Place, SqliteOptions};
use crate::watchers::{Watch, Watchers};
use crate::worker::{Batch, Context, Need, Worker};
use crate::{board, seats};

/// Seats in a SQLite database, shared by the processes of one machine.
pub struct SqliteStore {
    place: Place,
    liveness: Arc<Liveness>,
    bells: Arc<Bells>,
    watchers: Arc<Watchers>,
    clock: Arc<OnceLock<Clock>>,
    worker: OnceLock<Worker>,
}

impl SqliteStore {
    /// A store in this file, or the default one. Nothing is opened before the first call.
    pub fn new(options: SqliteOptions) -> Self {
        let (place, watchers) = (Place::new(options), Arc::<Watchers>::default());
        Self {
            liveness: Arc::new(Liveness::new(place.clone(), watchers.clone())),
            bells: Arc::new(Bells::new(place.clone(), watchers.clone())),
            watchers,
            clock: Arc::default(),
            worker: OnceLock::new(),
            place,
        }
    }

    /// A store in this file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::new(SqliteOptions { path: Some(path.into()) })
    }

    async fn run<T, F>(&self, need: Need, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    {
        self.worker()?.run(need, act).await
    }

    /// The thread that talks to the database, started if there is none. After a failure the next call tries again.
    fn worker(&self) -> Result<&Worker, StoreError> {
        if let Some(worker) = self.worker.get() {
            return Ok(worker);
        }
        let (liveness, bells, clock) = (self.liveness.clone(), self.bells.clone(), self.clock.clone());
        let started = Worker::start(Context { place: self.place.clone(), liveness, bells, clock });
        let started = started.map_err(|error| {
            StoreError::refused(format!("cannot start the thread that talks to the database: {error}"))
        })?;
        // Of two that are started at once, the second ends before it has opened anything.
        Ok(self.worker.get_or_init(|| started))
    }

    /// The same on a seat: if a row of it cannot be read, only this call fails.
    async fn run_on<T, F>(&self, need: Need, seat: &SeatName, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>, &SeatName) -> rusqlite::Result<T> + Send + 'static,
    {
        let seat = seat.clone();
        self.run(need, move |batch| batch.of_seat(&seat, |batch| act(batch, &seat))).await
    }

    /// The session to hold seats on. The folder for its lock is made with the database, so that is
    /// opened first.
    async fn session(&self) -> Result<Arc<str>, StoreError> {
        match self.liveness.session() {
            Ok(session) => Ok(session),
            Err(_) => {
                self.run(Need::Read, |_| Ok(Ok(()))).await?;
                self.liveness.session()
            }
        }
    }

    /// Looks whether there is news for who has seen this of a seat.
    async fn look(&self, watch: &Watch<'_>, seat: &SeatName, seen: &Seen) -> Looked {
        let hears = self.bells.listen(seat, seen.requests);
        let lease = seen.seat.as_ref().map_or(Duration::from_secs(1), |seat| seat.record.lease);
        match self.news(seat, seen).await {
            Ok((true, _)) => return Looked::News,
            Ok((false, Some(holder))) if !self.liveness.is_own(&holder) => {
                // Minded first, then looked whether it has happened: an end in between is told.
                let death = self.liveness.watch(&holder);
                watch.mind(death.clone());
                if death.happened.load(Ordering::Acquire) {
                    return Looked::News;
                }
            }
            Ok(_) => {}
            Err(_) => return Looked::Deaf(lease / 3),
        }
        if hears { Looked::Quiet } else { Looked::Deaf(lease / 3) }
    }

    /// Whether there is something to tell a watcher now; and who holds the seat, and is there.
    async fn news(&self, seat: &SeatName, seen: &Seen) -> Result<(bool, Option<String>), StoreError> {
        let seen = seen.clone();
        self.run_on(Need::Read, seat, move |batch, seat| {
            let reading = seats::read(batch, seat)?;
            let is_over = |seat: Option<&Seat>| seat.is_some_and(|seat| seat.life == Life::Over);
            let news = seen.differs_from(reading.seat.as_ref())
                || is_over(seen.seat.as_ref()) != is_over(reading.seat.as_ref())
                || (seen.requests && !board::list(batch, seat, NoteKind::Request)?.is_empty());
            // Once it is gone, there is nothing more to wait for.
            let holder = if is_over(reading.seat.as_ref()) { None } else { seats::holder(batch, seat)? };
            Ok((news, holder))
        })
        .await
    }
}

/// What a watcher has found when it looked.
enum Looked {
    News,
    /// Nothing; it will be told.
    Quiet,
    /// Nothing; what cannot be heard must be looked for, after so long.
    Deaf(Duration),
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.place.database).finish_non_exhaustive()
    }
}

impl SeatStore for SqliteStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Lock,
            judge: Judge::Store,
            takeover: Takeover::Instant,
            over_is_proof: true,
            push: if Bells::CAN_LISTEN { Push::Proven } else { Push::None },
            shared_heartbeat: true,
            durability: "a seat that was won is on disk before it counts",
            min_lease: Duration::from_millis(15),
            broken_by: &[
                "The folder beside the database is removed together with the database, its -wal or its -shm file while \
                 candidates run. Removing one of these files alone is noticed, and ends their terms in time.",
                "The database is overwritten in place, as by a restore from a backup, or a seat is deleted or edited by \
                 hand.",
                "The -wal file is removed and the leader is killed, or the database is removed while no process has it \
                 open, and a child of the leader works on: the next process does not know whose lock to wait for.",
                "The machine's wall clock is set back across a loss: when the database was removed while no process had \
                 it open, or the -wal file together with a killed leader, tokens go on from the time in milliseconds.",
                "The disk is written to by more than one machine. Network and FUSE file systems are refused.",
                "Work goes on in a process that has closed the lock file it was given, or that never had it.",
            ],
            ..Promises::of("sqlite")
        }
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.run_on(Need::Read, seat, |batch, seat| seats::read(batch, seat)).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let (expected, next) = (expected.cloned(), next.clone());
        // To win is durable; a release that is lost in a power cut costs a wait, and nothing else.
        let (need, session) = match next.is_vacant() {
            true => (Need::Write, None),
            false => (Need::Durable, Some(self.session().await?)),
        };
        let swap = move |batch: &mut Batch<'_>, seat: &SeatName| {
            seats::swap(batch, seat, expected.as_ref(), &next, session.as_deref())
        };
        self.run_on(need, seat, swap).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        let (held, record, session) = (held.clone(), record.clone(), self.session().await?);
        self.run_on(Need::Write, seat, move |batch, seat| seats::keep(batch, seat, &held, &record, &session)).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        // Listened for first, then looked: what changes in between is heard.
        let watch = self.watchers.watch(seat, seen.requests);
        // Boxed, as it takes much more room than what comes after it, and there may be many who wait.
        match Box::pin(self.look(&watch, seat, seen)).await {
            Looked::News => {}
            Looked::Quiet => watch.told().await,
            Looked::Deaf(pause) => drop(Box::pin(tokio::time::timeout(pause, watch.told())).await),
        }
        Change::Look
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.run_on(Need::Durable, seat, seats::forget).await
    }

    fn lifeline(&self, _: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Ok(self.liveness.lifeline()?.map(Lifeline::from))
    }
}

impl Board for SqliteStore {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        let note = note.clone();
        self.run_on(Need::Write, seat, move |batch, seat| board::put(batch, seat, &note)).await
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        let process = process.to_string();
        self.run(Need::Write, move |batch| board::attend(batch, &process, lifetime).map(Ok)).await
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        self.run_on(Need::Read, seat, move |batch, seat| board::list(batch, seat, kind)).await
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.run_on(Need::Write, seat, move |batch, seat| board::remove(batch, seat, kind, &key)).await
    }
}
