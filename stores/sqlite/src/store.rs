//! The store itself: each call becomes one act of the worker's next transaction.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Answers, BatchLimits, Board, Call, Clock, ClockTrust, DynNotes, Expect, LifeKind, Lifeline, News, Note, NoteState,
    NoteWrite, Notes, Promises, Push, Reading, SeatName, SessionId, Store, StoreError, Swap, Takeover, Version, Write,
};

use crate::liveness::Liveness;
use crate::place::{Place, SqliteOptions};
use crate::worker::{Batch, Context, Need, Worker};
use crate::{notes, seats};

/// Seats in a SQLite database, shared by the processes of one machine.
pub struct SqliteStore {
    context: Arc<Context>,
    worker: OnceLock<Worker>,
}

impl SqliteStore {
    /// A store in this file, or the default one. Nothing is opened before the first call.
    pub fn new(options: SqliteOptions) -> Self {
        let place = Place::new(options);
        let context = Context {
            liveness: Liveness::new(place.clone()),
            place,
            sender: rand::random(),
            clock: OnceLock::new(),
            news: OnceLock::new(),
        };
        Self { context: Arc::new(context), worker: OnceLock::new() }
    }

    /// A store in this file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::new(SqliteOptions { path: Some(path.into()) })
    }

    async fn run<T: Send + 'static>(
        &self,
        need: Need,
        act: impl FnOnce(&mut Batch<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.worker()?.run(need, act).await
    }

    /// The same on many seats or boards, each of which is answered by itself: if a row of one cannot be read, only that
    /// one fails.
    async fn run_on_each<A: Clone + Send + 'static, T: Send + 'static>(
        &self,
        need: Need,
        asks: &[A],
        to: &Answers<T>,
        name: fn(&A) -> &str,
        act: fn(&mut Batch<'_>, &A) -> rusqlite::Result<T>,
    ) -> Result<(), StoreError> {
        let asks = asks.to_vec();
        let each = move |batch: &mut Batch<'_>| -> rusqlite::Result<Vec<_>> {
            asks.iter().map(|ask| batch.about(name(ask), |batch| act(batch, ask))).collect()
        };
        let answers = self.run(need, each).await?;
        answers.into_iter().enumerate().for_each(|(place, answer)| to.set(place, answer));
        Ok(())
    }

    /// The thread that talks to the database, started if there is none. After a failure the next call tries again.
    fn worker(&self) -> Result<&Worker, StoreError> {
        if let Some(worker) = self.worker.get() {
            return Ok(worker);
        }
        let started = Worker::start(self.context.clone()).map_err(|error| {
            StoreError::refused(format!("cannot start the thread that talks to the database: {error}"))
        })?;
        // Of two that are started at once, the second ends before it has opened anything.
        Ok(self.worker.get_or_init(|| started))
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.context.place.database).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Lock,
            clock_trust: ClockTrust::Always,
            takeover: Takeover::Instant,
            over_is_proof: true,
            push: match cfg!(any(target_os = "linux", target_os = "android")) {
                true => Push::Proven,
                false => Push::None,
            },
            // A call is one transaction: further ones would wait for their turn all the same.
            reads: BatchLimits { seats: 1000, calls: 1 },
            writes: BatchLimits { seats: 1000, calls: 1 },
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

    fn attach(&self, clock: &Clock, news: &News) {
        let _ = self.context.clock.set(clock.clone());
        let _ = self.context.news.set(news.clone());
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.run_on_each(Need::Read, seats, to, |seat| seat.as_str(), |batch, seat| seats::read(batch, seat)).await
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        // To win is durable; a release that is lost in a power cut costs a wait, and nothing else.
        let bids = |write: &Write| !write.record.is_vacant() && !matches!(write.expect, Expect::Held(_));
        let need = if writes.iter().any(bids) { Need::Durable } else { Need::Write };
        self.run_on_each(need, writes, to, |write| write.seat.as_str(), seats::write).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        seats::session_of(version)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn watch(&self, interest: &tenure_core::Interest, news: &News) -> StoreError {
        // The folder that is listened to is made with the database.
        match self.run(Need::Read, |_| Ok(())).await {
            Ok(()) => crate::watch::watch(&self.context, interest, news).await,
            Err(error) => error,
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let seat = seat.clone();
        self.run(Need::Durable, move |batch| batch.about(seat.as_str(), |batch| seats::forget(batch, &seat))).await?
    }

    fn lifeline(&self, _: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Ok(self.context.liveness.lifeline()?.map(Lifeline::from))
    }
}

impl Notes for SqliteStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        self.run_on_each(Need::Write, notes, to, |note| name(&note.board), notes::write).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        self.run_on_each(Need::Read, boards, to, name, notes::list).await
    }
}

/// What an error says that a board is about.
fn name(board: &Board) -> &str {
    board.seat().map_or(board.kind(), |seat| seat.as_str())
}
