//! The store: each call becomes one job in the worker's next transaction.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Answers, BatchLimits, Board, Call, Clock, ClockTrust, DynNotes, Expect, LifeKind, Lifeline, News, Note, NoteState,
    NoteWrite, Notes, Promises, Push, Reading, SeatName, SessionId, Store, StoreError, Swap, Takeover, Token, Version,
    Write,
};

use crate::place::{Place, SqliteOptions};
use crate::process_locks::ProcessLocks;
use crate::worker::{Context, Need, Transaction, Worker};
use crate::{notes, seats};

/// A store in a SQLite database, for the processes of one machine.
///
/// The database is opened on the first call. One thread of the store runs all transactions.
pub struct SqliteStore {
    context: Arc<Context>,
    worker: OnceLock<Worker>,
}

impl SqliteStore {
    /// Creates a store for the file in `options`, or for the default file. It opens nothing before the first
    /// call.
    pub fn new(options: SqliteOptions) -> Self {
        Self::build(Place::new(options), false)
    }

    /// Makes the store read only: it needs no right to write, creates nothing and denies every write. A file that
    /// does not exist has no elections. For status pages and tools; candidates cannot stand over it.
    ///
    /// It opens the file for each call. A user that may read the file but not `FILE.d` does not see that the process of
    /// a leader has ended, and sees its seat as held until the lease expires.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self::build(self.context.place.clone(), true)
    }

    fn build(place: Place, read_only: bool) -> Self {
        let context = Context {
            process_locks: ProcessLocks::new(place.clone()),
            place,
            read_only,
            sender: rand::random(),
            clock: OnceLock::new(),
            news: OnceLock::new(),
        };
        Self { context: Arc::new(context), worker: OnceLock::new() }
    }

    /// Creates a store for this file. Its directory must exist and be on a local disk.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::new(SqliteOptions { path: Some(path.into()) })
    }

    async fn run<T: Send + 'static>(
        &self,
        need: Need,
        act: impl FnOnce(&mut Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.worker()?.run(need, act).await
    }

    /// Runs `act` on each of many seats or boards, and answers each of them separately: if a row cannot be
    /// decoded, only its own seat or board fails.
    async fn run_on_each<A: Clone + Send + 'static, T: Send + 'static>(
        &self,
        need: Need,
        asks: &[A],
        to: &Answers<T>,
        name: fn(&A) -> &str,
        act: fn(&mut Transaction<'_>, &A) -> rusqlite::Result<T>,
    ) -> Result<(), StoreError> {
        let asks = asks.to_vec();
        let each = move |tx: &mut Transaction<'_>| -> rusqlite::Result<Vec<_>> {
            asks.iter().map(|ask| tx.about(name(ask), |tx| act(tx, ask))).collect()
        };
        let answers = self.run(need, each).await?;
        answers.into_iter().enumerate().for_each(|(place, answer)| to.set(place, answer));
        Ok(())
    }

    /// Returns the worker, and starts its thread if it is not running. After a failed start, the next call
    /// tries again.
    fn worker(&self) -> Result<&Worker, StoreError> {
        if let Some(worker) = self.worker.get() {
            return Ok(worker);
        }
        let started = Worker::start(self.context.clone())
            .map_err(|error| StoreError::refused(format!("cannot start the database thread: {error}")))?;
        // If two calls start a worker at once, the second worker ends before it has opened anything.
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
            lifeline: true,
            push: match cfg!(any(target_os = "linux", target_os = "android")) {
                true => Push::Proven,
                false => Push::None,
            },
            // A call is one transaction, and SQLite runs one write transaction at a time.
            reads: BatchLimits { seats: 1000, calls: 1 },
            writes: BatchLimits { seats: 1000, calls: 1 },
            shared_heartbeat: true,
            durability: "a seat survives the end of all processes; a crash of the machine, which ends them, can lose the last \
                         changes of seats, but tokens stay above all earlier ones",
            min_lease: Duration::from_millis(15),
            broken_by: &[
                "The directory FILE.d is removed together with the database, its -wal or its -shm file while candidates \
                 run. Removing one of these files alone is detected, and ends their terms in time.",
                "The database is overwritten in place, for example by a restore from a backup, or a seat is deleted or \
                 edited by hand.",
                "A child of the leader keeps working after the -wal file was removed and the leader was killed, or after \
                 the database was removed while no process had it open: the next process does not know the lock to \
                 wait for.",
                "The machine's wall clock is set back across a loss of files: after the database was removed while no \
                 process had it open, or the -wal file together with a killed leader, tokens continue from the time in \
                 milliseconds.",
                "A disk is taken from a running machine without its last writes, or reports writes as synced too early: a leader \
                 of that machine can still lead, and on the same machine a token can repeat.",
                "More than one machine writes to the disk. Network and FUSE file systems are refused.",
                "Work continues in a process that closed the lock file it inherited, or that never had it.",
            ],
            ..Promises::of("sqlite")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        let _ = self.context.clock.set(clock.clone());
        let _ = self.context.news.set(news.clone());
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.run_on_each(Need::Read, seats, to, |seat| seat.as_str(), |tx, seat| seats::read(tx, seat)).await
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let need = writes.iter().map(need).max().unwrap_or(Need::Write);
        self.run_on_each(need, writes, to, |write| write.seat.as_str(), seats::write).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        seats::session_of(version)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    async fn watch(&self, interest: &tenure_core::Interest, news: &News) -> StoreError {
        // The directory that the watch listens on is created together with the database.
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
        self.run(Need::Durable, move |tx| tx.about(seat.as_str(), |tx| seats::forget(tx, &seat))).await?
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.run(Need::Read, |tx| seats::names(tx)).await
    }

    fn lifeline(&self, _: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Ok(self.context.process_locks.lifeline()?.map(Lifeline::from))
    }
}

impl Notes for SqliteStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        // A candidate is announced long before most bids. So its first announcement does what would delay the first bid:
        // it locks the file of the process.
        let announces = notes.iter().any(|note| matches!(note.board, Board::Candidates(_)));
        let need = if announces { Need::Bid(Token::ZERO) } else { Need::Write };
        self.run_on_each(need, notes, to, |note| name(&note.board), notes::write).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        self.run_on_each(Need::Read, boards, to, name, notes::list).await
    }
}

/// Returns what the write of a seat needs. If a power failure loses a win, its token is not issued again (see
/// `reservation.rs`), and nothing else of it matters: the leader is gone as well. But a claimed occasion must stay claimed.
/// A release that is lost costs a wait for the lease, and a resumable occasion whose work had returned can run again.
fn need(Write { expect, record, .. }: &Write) -> Need {
    if record.is_vacant() || matches!(expect, Expect::Held(_)) {
        Need::Write
    } else if record.claim.is_some() {
        Need::Durable
    } else {
        Need::Bid(record.token)
    }
}

/// Returns the name that an error shows for a board.
fn name(board: &Board) -> &str {
    board.seat().map_or(board.kind(), |seat| seat.as_str())
}

#[cfg(test)]
mod tests {
    use tenure_core::{Candidate, Claim, Incarnation, Record};

    use super::*;

    #[test]
    fn only_a_claim_waits_for_the_disk_whatever_its_token() {
        let seat = SeatName::new("jobs").unwrap();
        let (holder, token) = (Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) }, Token::new(7));
        let record = Record::new(Some(holder), token, Duration::from_secs(1));
        let claim = Some(Arc::new(Claim { at_ms: 1, by: "a".into(), token, done: false }));
        let held = Expect::Held(Version::new("v"));
        let need = |expect: &Expect, record: &Record| {
            need(&Write { seat: seat.clone(), expect: expect.clone(), record: record.clone() })
        };
        assert_eq!(need(&Expect::Absent(None), &record), Need::Bid(token));
        assert_eq!(need(&held, &record), Need::Write);
        let claimed = Record { claim, ..record.clone() };
        assert_eq!(need(&Expect::Absent(None), &claimed), Need::Durable);
        let vacant = Record { holder: None, ..claimed };
        assert_eq!(need(&Expect::Version(Version::new("v")), &vacant), Need::Write);
        assert!(Need::Durable > Need::Bid(Token::new(u64::MAX)));
    }
}
