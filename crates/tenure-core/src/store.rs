//! What a store author writes.
//!
//! A store keeps one small record per seat and changes it only on condition. Everything else, when
//! to look, when to bid, how long to count on a lease, which seats go into one call, is the engine's business.
//!
//! Most stores are written as a [`SeatStore`], one seat at a time: see `docs/writing-a-store.md` for one from
//! scratch, and the crate `tenure-testkit` for the laws that it must pass. A store that can read or write many
//! seats at once is a [`Store`].

pub(crate) mod answers;
mod notes;
mod promises;
mod seat_store;
mod single_seat;
pub(crate) mod watch;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tenure_protocol::{Identity, Reading, Record, SessionId, Swap, Version};

pub use self::answers::Answers;
pub use self::notes::{Board, DynNotes, Note, NoteWrite, Notes};
pub use self::promises::{LifeKind, Promises};
pub use self::seat_store::{DynSeatStore, SeatStore, Seen};
pub use self::single_seat::SingleSeat;
pub use self::watch::{Interest, InterestChange, News, Scope, SeatInterest};
use crate::{Clock, Lifeline, SeatName, StoreError};

/// A future behind a pointer.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place where seats are kept.
///
/// Every call runs on the engine's thread and is dropped when nobody waits for it any more, so a call must never
/// block the thread, and a dropped one must leave nothing locked. There must be no retries inside: they would hide
/// when a write was sent, and the engine retries by itself.
///
/// The engine decides which seats go into one call, by what the store says it can take
/// ([`Promises::reads`], [`Promises::writes`]), and answers each by itself: see [`Answers`].
pub trait Store: Send + Sync + 'static {
    /// What this store promises, as data: it is checked at `start()`, and printed for users.
    fn promises(&self) -> Promises;

    /// Hands over the clock of the engine, and where to tell what it should know, once, before anything else. A
    /// store whose seats live on a shared session tells the age of its heartbeat by the clock ([`Swap::Done`]'s
    /// `since`), and the session's end by the news.
    fn attach(&self, clock: &Clock, news: &News) {
        let _ = (clock, news);
    }

    /// The part of the store that a seat is in, where a call can only be about seats of one part.
    fn shard(&self, seat: &SeatName) -> u64 {
        let _ = seat;
        0
    }

    /// Reads seats.
    fn read(
        &self,
        call: &Call,
        seats: &[SeatName],
        to: &Answers<Reading>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes seats, each on its own condition and no seat twice. If the condition does not hold, or if a living
    /// session other than the caller's own holds the seat, it stays as it is and the answer is [`Swap::Lost`],
    /// which is not an error. `Done` means as durable as the store's promises say.
    fn write(
        &self,
        call: &Call,
        writes: &[Write],
        to: &Answers<Swap>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The session that a seat of this version is held on, if sessions of this store are told of when they end. No two
    /// sessions may ever have the same name.
    fn session_of(&self, version: &Version) -> Option<SessionId> {
        let _ = version;
        None
    }

    /// Watches all seats that the engine is interested in, and tells it of changes, for as long as it can: one watch
    /// serves all elections of a process. It says when it [listens](News::listening); what changes before that need not
    /// be told. When this returns, the engine looks by itself, and calls it again after a while. The default tells
    /// nothing.
    fn watch(&self, interest: &Interest, news: &News) -> impl Future<Output = StoreError> + Send {
        let _ = (interest, news);
        std::future::pending()
    }

    /// See [`SeatStore::notes`].
    fn notes(&self) -> Option<&dyn DynNotes> {
        None
    }

    /// See [`SeatStore::forget`].
    fn forget(&self, seat: &SeatName) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = seat;
        std::future::ready(Err(StoreError::denied("this store cannot forget a seat")))
    }

    /// See [`SeatStore::lifeline`].
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        let _ = seat;
        Ok(None)
    }
}

/// What all seats of a call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The lease of their candidates.
    pub lease: Duration,
    /// How long an answer is waited for.
    pub within: Duration,
}

/// One seat to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which.
    pub seat: SeatName,
    /// On what condition.
    pub expect: Expect,
    /// What to write.
    pub record: Record,
}

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no seat yet, and the data is still the one that was read without it: readings have this identity. Where
    /// the identity has changed, the answer is [`Swap::Lost`]: somebody may have led by data that is lost.
    Absent(Option<Identity>),
    /// The seat has this version.
    Version(Version),
    /// We hold the seat, last seen with this version, and keep it: its record need not be written anew. A store with
    /// sessions may answer from one heartbeat that all seats share, and a store that can match on the record's
    /// incarnation and token may do so instead of on the version. The answer is [`Swap::Done`] only if the seat still
    /// names this holder and term.
    Held(Version),
}

impl Expect {
    /// Whether this expects a seat to be absent from data that had another identity than this.
    pub fn is_absent_elsewhere(&self, identity: &str) -> bool {
        matches!(self, Self::Absent(Some(read)) if read.as_str() != identity)
    }
}

/// [`Store`] behind a pointer. Every store is one.
pub trait DynStore: Send + Sync + 'static {
    /// See [`Store::promises`].
    fn promises(&self) -> Promises;
    /// See [`Store::attach`].
    fn attach(&self, clock: &Clock, news: &News);
    /// See [`Store::shard`].
    fn shard(&self, seat: &SeatName) -> u64;
    /// See [`Store::read`].
    fn read<'a>(
        &'a self,
        call: &'a Call,
        seats: &'a [SeatName],
        to: &'a Answers<Reading>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Store::write`].
    fn write<'a>(
        &'a self,
        call: &'a Call,
        writes: &'a [Write],
        to: &'a Answers<Swap>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Store::session_of`].
    fn session_of(&self, version: &Version) -> Option<SessionId>;
    /// See [`Store::watch`].
    fn watch<'a>(&'a self, interest: &'a Interest, news: &'a News) -> BoxFuture<'a, StoreError>;
    /// See [`Store::notes`].
    fn notes(&self) -> Option<&dyn DynNotes>;
    /// See [`Store::forget`].
    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Store::lifeline`].
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>>;
}

impl<S: Store> DynStore for S {
    fn promises(&self) -> Promises {
        Store::promises(self)
    }

    fn attach(&self, clock: &Clock, news: &News) {
        Store::attach(self, clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        Store::shard(self, seat)
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        seats: &'a [SeatName],
        to: &'a Answers<Reading>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Store::read(self, call, seats, to))
    }

    fn write<'a>(
        &'a self,
        call: &'a Call,
        writes: &'a [Write],
        to: &'a Answers<Swap>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Store::write(self, call, writes, to))
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        Store::session_of(self, version)
    }

    fn watch<'a>(&'a self, interest: &'a Interest, news: &'a News) -> BoxFuture<'a, StoreError> {
        Box::pin(Store::watch(self, interest, news))
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Store::notes(self)
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

    fn attach(&self, clock: &Clock, news: &News) {
        (**self).attach(clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        (**self).shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        (**self).read(call, seats, to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        (**self).write(call, writes, to).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        (**self).session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        (**self).watch(interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        (**self).notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        (**self).forget(seat).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        (**self).lifeline(seat)
    }
}
