//! What a store author writes.
//!
//! A store keeps one small record per seat and changes it only on condition. Everything else, when
//! to look, when to bid, how long to count on a lease, is the protocol's business. See
//! `docs/writing-a-store.md` for a store from scratch, and the crate `tenure-testkit` for the laws
//! that it must pass.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tenure_protocol::{Change, Incarnation, Judge, Push, Reading, Record, Seat, Swap, Takeover, Version};

use crate::{Clock, Lifeline, SeatName, StoreError};

/// A place where seats are kept.
///
/// Write plain `async fn`s. Every call runs on the engine's thread and is dropped when it takes
/// longer than the attempt time-out, so a call must never block the thread, and a dropped one must
/// leave nothing locked. There must be no retries inside: they would hide when a write was sent,
/// and the engine retries by itself.
pub trait Store: Send + Sync + 'static {
    /// What this store promises, as data: it is checked at `start()`, and printed for users.
    fn promises(&self) -> Promises;

    /// Hands over the clock of the engine, once, before anything else. A store whose seats live on
    /// a shared session tells the age of its heartbeat by it ([`Swap::Done`]'s `since`).
    fn attach(&self, clock: &Clock) {
        let _ = clock;
    }

    /// Reads a seat.
    fn read(&self, seat: &SeatName) -> impl Future<Output = Result<Reading, StoreError>> + Send;

    /// Writes a seat, if and only if its version is the expected one; `None` means that there must
    /// be no seat yet. If it is not, or if a living session other than the caller's own holds the
    /// seat, nothing is changed and the answer is [`Swap::Lost`], which is not an error. `Done`
    /// means as durable as the store's promises say.
    fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;

    /// Keeps a seat that we hold. The default is a swap; a store with sessions may answer from one
    /// heartbeat that all seats share, and a store that can match on the record's incarnation and
    /// token may do so instead of on the version.
    fn renew(
        &self,
        seat: &SeatName,
        held: &Version,
        record: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        self.swap(seat, Some(held), record)
    }

    /// Resolves when the holder may have changed since `seen`, also if that was before the call, or
    /// when a request lies on the board and the caller minds those ([`Change::Look`]); not at every
    /// renewal, and not for a holder that was seen to be gone already. Resolves with [`Change::SessionOver`] when our own session is known to be over.
    /// The default never resolves, and candidates look every so often.
    fn changed(&self, seat: &SeatName, seen: &Seen) -> impl Future<Output = Change> + Send {
        let _ = (seat, seen);
        std::future::pending()
    }

    /// The store's board, if it has one.
    fn board(&self) -> Option<&dyn DynBoard> {
        None
    }

    /// Removes a seat and its board, but keeps the number that its tokens must stay above. For
    /// operators, when an election is not needed any more; whoever leads loses its seat.
    fn forget(&self, seat: &SeatName) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = seat;
        std::future::ready(Err(StoreError::denied("this store cannot forget a seat")))
    }

    /// Returns a duplicate of the open file or socket that keeps this seat held, where the seat is freed
    /// when the last duplicate is closed: a lock file, or the connection of a session that ends with its
    /// process. A child process that does the leader's work holds it until that work is over, so that the
    /// seat stays held if this process is killed first.
    ///
    /// `None` if this process does not hold the seat, and for every store whose seats or sessions expire
    /// by time alone: those stay held for the rest of the lease in any case. A store that gives up a
    /// session ends it explicitly (`shutdown(2)`), as closing its own descriptor does not end it.
    ///
    /// # Errors
    /// If it cannot be duplicated, as when this process has too many files open.
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        let _ = seat;
        Ok(None)
    }
}

/// What a watcher knows of a seat already, and what is news to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The seat as last seen; `None`: there was none.
    pub seat: Option<Seat>,
    /// Whether requests on the board are news, too: the leader minds them.
    pub requests: bool,
}

impl Seen {
    /// Whether a seat, as it is now, has another holder or another term than the one seen.
    pub fn differs_from(&self, seat: Option<&Seat>) -> bool {
        let key = |seat: &Seat| (seat.record.holder.as_ref().map(|holder| holder.incarnation), seat.record.token);
        self.seat.as_ref().map(key) != seat.map(key)
    }
}

/// Small side records of a seat, never part of the seat itself: requests to the leader, and who
/// stands.
///
/// A request lasts for its lifetime. An announcement, whose key is the incarnation of the process
/// that made it, lasts for as long as that process [attends](Board::attend): it is written once, and
/// one call for all seats of a process keeps all that it has announced.
pub trait Board: Send + Sync {
    /// Puts a note on the board of a seat, in place of one with the same kind and key.
    fn put(&self, seat: &SeatName, note: &Note) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Tells that a process is there, which counts for this long from its last sign of life: from now, or
    /// from a heartbeat that it shares with its seats, if that is younger than a quarter of this. Answers
    /// whether it has been there all along, or its announcements may have been cleared away meanwhile.
    fn attend(
        &self,
        process: Incarnation,
        lifetime: Duration,
    ) -> impl Future<Output = Result<Attended, StoreError>> + Send;

    /// The notes of this kind on the board of a seat that have not outlived their lifetime, or whose
    /// process attends.
    fn list(&self, seat: &SeatName, kind: NoteKind) -> impl Future<Output = Result<Vec<Note>, StoreError>> + Send;

    /// Takes a note off the board. That there is none is not an error.
    fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str)
    -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A note on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// Tells it from others of its kind.
    pub key: String,
    /// What it says, as JSON.
    pub value: String,
    /// How long it stays from when it was put; a store may keep it a little longer. Announcements
    /// stay for as long as their process attends instead.
    pub lifetime: Duration,
}

/// What came of attending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attended {
    /// The process was there already: what it has announced is listed.
    Still,
    /// It was not, or no longer: what it has announced before may be gone, and is to be put again.
    Anew,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// Something is asked of the leader. Wakes it.
    Request,
    /// A candidate tells of itself. Wakes nobody.
    Announcement,
}

impl NoteKind {
    /// One word for it, for use in keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Announcement => "announcement",
        }
    }
}

/// What a store promises, as data.
///
/// Write it as `Promises { push: Push::Hint, ..Promises::of("redis") }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The store's name, as in URLs.
    pub store: &'static str,
    /// How it tells that a holder is gone.
    pub life: LifeKind,
    /// How much its clock is believed, unless an election says otherwise.
    pub judge: Judge,
    /// How soon a seat is taken whose session is over, unless an election says otherwise.
    pub takeover: Takeover,
    /// Whether a session cannot end while its process lives, so that its end is proof.
    pub over_is_proof: bool,
    /// How much its push can be counted on.
    pub push: Push,
    /// Whether one heartbeat serves all seats of a process.
    pub shared_heartbeat: bool,
    /// Whether a process attends by the session of its seats, so that [`Board::attend`] costs no write of its own.
    /// Then it is called every third of a lease, for a lifetime of a lease; otherwise once a lease, for two.
    pub attends_by_session: bool,
    /// What survives: in words, for people.
    pub durability: &'static str,
    /// The shortest lease that it can keep.
    pub min_lease: Duration,
    /// Leases must be multiples of this (a second, for stores that count in seconds).
    pub lease_step: Duration,
    /// What breaks the promise of one leader at a time, a sentence each.
    pub broken_by: &'static [&'static str],
}

impl Promises {
    /// A store of this name that promises the least.
    pub const fn of(store: &'static str) -> Self {
        Self {
            store,
            life: LifeKind::Observe,
            judge: Judge::Vouched,
            takeover: Takeover::Safe,
            over_is_proof: false,
            push: Push::None,
            shared_heartbeat: false,
            attends_by_session: false,
            durability: "as the server is configured",
            min_lease: Duration::from_millis(15),
            lease_step: Duration::from_nanos(1),
            broken_by: &[],
        }
    }
}

/// How a store tells that a holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeKind {
    /// Only by versions that no longer change.
    Observe,
    /// By its own clock.
    Clock,
    /// By sessions that it ends itself.
    Session,
    /// By locks that the operating system frees when a process is gone, and its own clock.
    Lock,
}

impl fmt::Display for LifeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "observed",
            Self::Clock => "clock",
            Self::Session => "session",
            Self::Lock => "lock",
        })
    }
}

/// A future behind a pointer.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`Store`] behind a pointer. Every store is one.
pub trait DynStore: Send + Sync + 'static {
    /// See [`Store::promises`].
    fn promises(&self) -> Promises;
    /// See [`Store::attach`].
    fn attach(&self, clock: &Clock);
    /// See [`Store::read`].
    fn read<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<Reading, StoreError>>;
    /// See [`Store::swap`].
    fn swap<'a>(
        &'a self,
        seat: &'a SeatName,
        expected: Option<&'a Version>,
        next: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// See [`Store::renew`].
    fn renew<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// See [`Store::changed`].
    fn changed<'a>(&'a self, seat: &'a SeatName, seen: &'a Seen) -> BoxFuture<'a, Change>;
    /// See [`Store::board`].
    fn board(&self) -> Option<&dyn DynBoard>;
    /// See [`Store::forget`].
    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Store::lifeline`].
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>>;
}

impl<S: Store> DynStore for S {
    fn promises(&self) -> Promises {
        Store::promises(self)
    }

    fn attach(&self, clock: &Clock) {
        Store::attach(self, clock);
    }

    fn read<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<Reading, StoreError>> {
        Box::pin(Store::read(self, seat))
    }

    fn swap<'a>(
        &'a self,
        seat: &'a SeatName,
        expected: Option<&'a Version>,
        next: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(Store::swap(self, seat, expected, next))
    }

    fn renew<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(Store::renew(self, seat, held, record))
    }

    fn changed<'a>(&'a self, seat: &'a SeatName, seen: &'a Seen) -> BoxFuture<'a, Change> {
        Box::pin(Store::changed(self, seat, seen))
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Store::board(self)
    }

    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Store::forget(self, seat))
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Store::lifeline(self, seat)
    }
}

/// A store behind a pointer is a store: what `connect` returns can be handed on like any other.
#[deny(clippy::missing_trait_methods)]
impl Store for Box<dyn DynStore> {
    fn promises(&self) -> Promises {
        (**self).promises()
    }

    fn attach(&self, clock: &Clock) {
        (**self).attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        (**self).read(seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        (**self).swap(seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        (**self).renew(seat, held, record).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        (**self).changed(seat, seen).await
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        (**self).board()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        (**self).forget(seat).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        (**self).lifeline(seat)
    }
}

/// [`Board`] behind a pointer. Every board is one.
pub trait DynBoard: Send + Sync {
    /// See [`Board::put`].
    fn put<'a>(&'a self, seat: &'a SeatName, note: &'a Note) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Board::attend`].
    fn attend(&self, process: Incarnation, lifetime: Duration) -> BoxFuture<'_, Result<Attended, StoreError>>;
    /// See [`Board::list`].
    fn list<'a>(&'a self, seat: &'a SeatName, kind: NoteKind) -> BoxFuture<'a, Result<Vec<Note>, StoreError>>;
    /// See [`Board::remove`].
    fn remove<'a>(&'a self, seat: &'a SeatName, kind: NoteKind, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

impl<B: Board> DynBoard for B {
    fn put<'a>(&'a self, seat: &'a SeatName, note: &'a Note) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Board::put(self, seat, note))
    }

    fn attend(&self, process: Incarnation, lifetime: Duration) -> BoxFuture<'_, Result<Attended, StoreError>> {
        Box::pin(Board::attend(self, process, lifetime))
    }

    fn list<'a>(&'a self, seat: &'a SeatName, kind: NoteKind) -> BoxFuture<'a, Result<Vec<Note>, StoreError>> {
        Box::pin(Board::list(self, seat, kind))
    }

    fn remove<'a>(&'a self, seat: &'a SeatName, kind: NoteKind, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Board::remove(self, seat, kind, key))
    }
}
