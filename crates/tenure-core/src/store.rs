//! The traits that a store author implements.
//!
//! A store keeps one small record per seat, and changes it only on a condition. The engine decides everything else:
//! when to read and to bid, how long to rely on a lease, which seats share a call.
//!
//! Most stores implement [`SeatStore`], which handles one seat at a time: `docs/writing-a-store.md` builds one, and
//! the crate `tenure-testkit` has the laws that it must pass. A store that can read or write many seats in one call
//! implements [`Store`].

pub(crate) mod answers;
mod notes;
mod promises;
mod seat_store;
mod single_seat;
pub(crate) mod watch;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tenure_protocol::{DataIdentity, Reading, Record, SessionId, Swap, Version};

pub use self::answers::Answers;
pub use self::notes::{Board, DynNotes, Note, NoteWrite, Notes};
pub use self::promises::{LifeKind, Promises};
pub use self::seat_store::{DynSeatStore, SeatStore, Seen};
pub use self::single_seat::SingleSeat;
pub use self::watch::{Interest, InterestChange, News, Scope, SeatInterest};
use crate::{Clock, Lifeline, SeatName, StoreError};

/// A future in a box, as the traits without generics return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store that handles many seats in one call.
///
/// Every call runs on the engine's thread, and is dropped when no candidate waits for it any more. So a call must
/// never block the thread, and a dropped call must leave nothing locked. A store must not retry: a retry would hide
/// when a write was sent, and the engine retries.
///
/// The engine decides which seats share a call, within the limits of the store ([`Promises::reads`],
/// [`Promises::writes`]). The store answers for each seat separately: see [`Answers`].
pub trait Store: Send + Sync + 'static {
    /// Returns what this store promises. The engine checks it when an election starts, and `tenure stores` prints it.
    fn promises(&self) -> Promises;

    /// Receives the clock of the engine and the channel for notifications, once, before all other calls.
    ///
    /// A store whose seats are held by a shared session reports the age of the session's heartbeat by this clock
    /// (`since` of [`Swap::Done`]), and the end of the session by `news`.
    fn attach(&self, clock: &Clock, news: &News) {
        let _ = (clock, news);
    }

    /// Returns the shard of a seat, for stores in which all seats of a call must be in the same shard.
    fn shard(&self, seat: &SeatName) -> u64 {
        let _ = seat;
        0
    }

    /// Reads seats, and answers for each of them with its state at one moment during the call. A call can contain the same
    /// seat twice, for a candidate and for an observer.
    fn read(
        &self,
        call: &Call,
        seats: &[SeatName],
        to: &Answers<Reading>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes seats, each on a separate condition. A call never contains the same seat twice.
    ///
    /// If the condition does not hold, or if a living session of another process holds the seat, the store leaves the
    /// seat unchanged and answers [`Swap::Lost`], which is not an error. [`Swap::Done`] means that the write is as
    /// durable as the store promises.
    fn write(
        &self,
        call: &Call,
        writes: &[Write],
        to: &Answers<Swap>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the session that holds a seat of this version, for stores that report the end of sessions
    /// ([`News::session_over`]). Two sessions must never have the same name.
    fn session_of(&self, version: &Version) -> Option<SessionId> {
        let _ = version;
        None
    }

    /// Watches all seats that the engine is interested in, and reports their changes, for as long as possible.
    ///
    /// One watch serves all elections of a process. The store reports when it [listens](News::listening); it need not
    /// report changes before that. When the watch returns with an error, candidates read their seats at regular
    /// intervals, and the engine starts the watch again after a pause. The default never reports anything.
    fn watch(&self, interest: &Interest, news: &News) -> impl Future<Output = StoreError> + Send {
        let _ = (interest, news);
        std::future::pending()
    }

    /// Returns the notes of this store; `None` if it keeps none. See [`SeatStore::notes`].
    fn notes(&self) -> Option<&dyn DynNotes> {
        None
    }

    /// Removes a seat and its notes, and keeps the token floor. See [`SeatStore::forget`].
    fn forget(&self, seat: &SeatName) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = seat;
        std::future::ready(Err(StoreError::denied("this store cannot forget a seat")))
    }

    /// Lists the seats that have a record. See [`SeatStore::list_seats`].
    fn list_seats(&self) -> impl Future<Output = Result<Vec<SeatName>, StoreError>> + Send {
        std::future::ready(Err(StoreError::denied("this store cannot list its elections")))
    }

    /// Returns a descriptor that keeps this seat held while any process has it open. See [`SeatStore::lifeline`].
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        let _ = seat;
        Ok(None)
    }
}

/// The properties that all seats of a call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The lease of the candidates that ask. All candidates of a call have the same lease.
    pub lease: Duration,
    /// How long the engine waits for answers before it drops the call.
    pub within: Duration,
}

/// A conditional write of one seat, as part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The name of the seat that the store writes.
    pub seat: SeatName,
    /// The condition under which the store writes the record.
    pub expect: Expect,
    /// The record that replaces the record of the seat.
    pub record: Record,
}

/// The condition of a write. The store checks it and writes in one atomic step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The seat does not exist, and the data still has the identity that it had when the candidate read it without the
    /// seat. If the identity has changed, the answer is [`Swap::Lost`]: another candidate can have led with data that
    /// is lost now.
    ///
    /// The answer is [`Swap::Lost`] as well if the token of the record is not above the last token of a seat that was
    /// removed ([`Store::forget`]): the bid is from before the removal, and a removed term may have had its token.
    Absent(Option<DataIdentity>),
    /// The seat exists and has exactly this version.
    Version(Version),
    /// This candidate holds the seat, last seen with this version, and renews it. The record need not be written
    /// again: a store with sessions can answer from one heartbeat that all seats share, and a store that can match the
    /// record's incarnation and token can do so instead of matching the version. The answer is [`Swap::Done`] only if
    /// the seat still names this holder and term.
    Held(Version),
    /// The seat exists and has exactly this version, and the process that holds it is dead, with all of its work. The
    /// record is vacant: this is the last will of the dead process. A store whose sessions outlive their processes
    /// writes it although the session of the dead process has not ended yet.
    HolderDead(Version),
}

impl Expect {
    /// Returns the version that the seat must have, or `None` if the seat must not exist.
    pub fn version(&self) -> Option<&Version> {
        match self {
            Self::Absent(_) => None,
            Self::Version(version) | Self::Held(version) | Self::HolderDead(version) => Some(version),
        }
    }

    /// Returns whether this expects a seat to be absent from data with an identity other than `identity`. Then the
    /// answer is [`Swap::Lost`].
    pub fn is_absent_elsewhere(&self, identity: &str) -> bool {
        matches!(self, Self::Absent(Some(read)) if read.as_str() != identity)
    }
}

/// The form of [`Store`] without generics, for `dyn`. Every [`Store`] implements it.
pub trait DynStore: Send + Sync + 'static {
    /// Calls [`Store::promises`] through a pointer.
    fn promises(&self) -> Promises;
    /// Calls [`Store::attach`] through a pointer.
    fn attach(&self, clock: &Clock, news: &News);
    /// Calls [`Store::shard`] through a pointer.
    fn shard(&self, seat: &SeatName) -> u64;
    /// Calls [`Store::read`] with its future in a box.
    fn read<'a>(
        &'a self,
        call: &'a Call,
        seats: &'a [SeatName],
        to: &'a Answers<Reading>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Calls [`Store::write`] with its future in a box.
    fn write<'a>(
        &'a self,
        call: &'a Call,
        writes: &'a [Write],
        to: &'a Answers<Swap>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Calls [`Store::session_of`] through a pointer.
    fn session_of(&self, version: &Version) -> Option<SessionId>;
    /// Calls [`Store::watch`] with its future in a box.
    fn watch<'a>(&'a self, interest: &'a Interest, news: &'a News) -> BoxFuture<'a, StoreError>;
    /// Calls [`Store::notes`] through a pointer.
    fn notes(&self) -> Option<&dyn DynNotes>;
    /// Calls [`Store::forget`] with its future in a box.
    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Calls [`Store::list_seats`] with its future in a box.
    fn list_seats(&self) -> BoxFuture<'_, Result<Vec<SeatName>, StoreError>>;
    /// Calls [`Store::lifeline`] through a pointer.
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

    fn list_seats(&self) -> BoxFuture<'_, Result<Vec<SeatName>, StoreError>> {
        Box::pin(Store::list_seats(self))
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Store::lifeline(self, seat)
    }
}

/// A boxed store is a store, so the result of `tenure::connect` can be used like any other store.
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

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        (**self).list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        (**self).lifeline(seat)
    }
}
