//! Stores that handle one seat at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::future::{AbortHandle, Abortable, Aborted, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tenure_protocol::{Change, Push, PushDetail, Reading, Record, Seat, Swap, Version};

use super::{
    Answers, BoxFuture, Call, DynNotes, Expect, Interest, InterestChange, News, Promises, Scope, Store, Write,
};
use crate::{Clock, Lifeline, SeatName, StoreError};

/// A store that handles one seat at a time. Every `SeatStore` is a [`Store`].
///
/// Implement the methods as plain `async fn`s. Every call runs on the engine's thread, and is dropped when it takes
/// longer than `call_timeout`. So a call must never block the thread, and a dropped call must leave nothing locked. A
/// store must not retry: a retry would hide when a write was sent, and the engine retries.
pub trait SeatStore: Send + Sync + 'static {
    /// Returns what this store promises. The engine checks it when an election starts, and `tenure stores` prints it.
    fn promises(&self) -> Promises;

    /// Receives the clock of the engine, once, before all other calls. A store whose seats are held by a shared session
    /// reports the age of the session's heartbeat by this clock (`since` of [`Swap::Done`]).
    fn attach(&self, clock: &Clock) {
        let _ = clock;
    }

    /// Reads a seat, its token floor and the identity of the data.
    fn read(&self, seat: &SeatName) -> impl Future<Output = Result<Reading, StoreError>> + Send;

    /// Writes a seat if and only if its version is the expected one; `None` means that the seat must not exist yet.
    ///
    /// If the version differs, or if a living session of another process holds the seat, the store changes nothing and
    /// answers [`Swap::Lost`], which is not an error. [`Swap::Done`] means that the write is as durable as the store
    /// promises.
    ///
    /// If the seat was removed ([`forget`](Self::forget)), the answer is [`Swap::Lost`] unless the token is above the one
    /// that was kept: the bid may be from before the removal.
    ///
    /// A store whose readings have an identity should implement [`Store`]: there, a bid on an absent seat contains the
    /// identity of the data in which the seat was absent ([`Expect::Absent`]).
    fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send;

    /// Renews a seat that this process holds. The default is a [`swap`](Self::swap).
    ///
    /// A store with sessions can answer from one heartbeat that all seats share. A store that can match the record's
    /// incarnation and token can do so instead of matching the version.
    fn renew(
        &self,
        seat: &SeatName,
        held: &Version,
        record: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        self.swap(seat, Some(held), record)
    }

    /// Frees a seat whose holder is dead, with all of its work: writes a vacant record if the seat still has this
    /// version. The default is a [`swap`](Self::swap).
    ///
    /// A store whose sessions outlive their processes writes the record although the session of the dead process has
    /// not ended yet.
    fn free(
        &self,
        seat: &SeatName,
        held: &Version,
        vacant: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        self.swap(seat, Some(held), vacant)
    }

    /// Waits for a change of a seat.
    ///
    /// Resolves with [`Change::Look`] when the holder has possibly changed since `seen`, even if it changed before the
    /// call, or when a request is pending and the caller subscribed to requests ([`Seen::requests`]). It does not
    /// resolve at every renewal, nor for a holder that `seen` already shows as gone. Resolves with
    /// [`Change::SessionOver`] when the session of this process has ended.
    ///
    /// The default never resolves; then candidates read the seat at regular intervals.
    fn changed(&self, seat: &SeatName, seen: &Seen) -> impl Future<Output = Change> + Send {
        let _ = (seat, seen);
        std::future::pending()
    }

    /// Returns the notes of this store; `None` if it keeps none. Without notes there is no list of candidates, and no
    /// requests reach the leader.
    fn notes(&self) -> Option<&dyn DynNotes> {
        None
    }

    /// Removes a seat and its notes, and keeps the token floor. For operators, when an election is not used any more. A
    /// leader loses its seat.
    fn forget(&self, seat: &SeatName) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = seat;
        std::future::ready(Err(StoreError::denied("this store cannot forget a seat")))
    }

    /// Lists the seats that have a record, with a holder or without, in any order. Lists no seat that was removed.
    ///
    /// "All" means all within the scope of this store: its prefix, schema, namespace or file. The call writes nothing
    /// and creates nothing, and a table or a namespace that does not exist has no seats. It is for people who ask which
    /// elections exist, and no election depends on it. The engine drops the call when it takes longer than ten seconds.
    fn list_seats(&self) -> impl Future<Output = Result<Vec<SeatName>, StoreError>> + Send {
        std::future::ready(Err(StoreError::denied("this store cannot list its elections")))
    }

    /// Returns a duplicate of the open file or socket that keeps this seat held, for stores in which the seat is freed
    /// when the last duplicate is closed: a lock file, or the connection of a session that ends with its process.
    ///
    /// A child process that does the leader's work keeps the duplicate open until that work is over. So the seat stays
    /// held if this process is killed first.
    ///
    /// Returns `None` if this process does not hold the seat, and for every store whose seats or sessions expire only
    /// by time: those stay held for the rest of the lease in any case. A store that gives up a session must end it
    /// explicitly (`shutdown(2)`), because closing its own descriptor does not end it.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated, for example because this process has too many files open.
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        let _ = seat;
        Ok(None)
    }
}

/// The state of a seat that a watcher already knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The seat as last seen; `None` if it did not exist.
    pub seat: Option<Seat>,
    /// Whether the watcher subscribes to requests on the board. Only the leader does.
    pub requests: bool,
}

impl Seen {
    /// Returns whether the current seat has another holder or another term than the one that was seen.
    pub fn differs_from(&self, seat: Option<&Seat>) -> bool {
        self.seat.as_ref().map(|seat| seat.record.names()) != seat.map(|seat| seat.record.names())
    }
}

/// The form of [`SeatStore`] without generics, for `dyn`. Every [`SeatStore`] implements it.
pub trait DynSeatStore: Send + Sync + 'static {
    /// Calls [`SeatStore::promises`] through a pointer.
    fn promises(&self) -> Promises;
    /// Calls [`SeatStore::attach`] through a pointer.
    fn attach(&self, clock: &Clock);
    /// Calls [`SeatStore::read`] with its future in a box.
    fn read<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<Reading, StoreError>>;
    /// Calls [`SeatStore::swap`] with its future in a box.
    fn swap<'a>(
        &'a self,
        seat: &'a SeatName,
        expected: Option<&'a Version>,
        next: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// Calls [`SeatStore::renew`] with its future in a box.
    fn renew<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// Calls [`SeatStore::free`] with its future in a box.
    fn free<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        vacant: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// Calls [`SeatStore::changed`] with its future in a box.
    fn changed<'a>(&'a self, seat: &'a SeatName, seen: &'a Seen) -> BoxFuture<'a, Change>;
    /// Calls [`SeatStore::notes`] through a pointer.
    fn notes(&self) -> Option<&dyn DynNotes>;
    /// Calls [`SeatStore::forget`] with its future in a box.
    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Calls [`SeatStore::list_seats`] with its future in a box.
    fn list_seats(&self) -> BoxFuture<'_, Result<Vec<SeatName>, StoreError>>;
    /// Calls [`SeatStore::lifeline`] through a pointer.
    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>>;
}

impl<S: SeatStore> DynSeatStore for S {
    fn promises(&self) -> Promises {
        SeatStore::promises(self)
    }

    fn attach(&self, clock: &Clock) {
        SeatStore::attach(self, clock);
    }

    fn read<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<Reading, StoreError>> {
        Box::pin(SeatStore::read(self, seat))
    }

    fn swap<'a>(
        &'a self,
        seat: &'a SeatName,
        expected: Option<&'a Version>,
        next: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(SeatStore::swap(self, seat, expected, next))
    }

    fn renew<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(SeatStore::renew(self, seat, held, record))
    }

    fn free<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        vacant: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>> {
        Box::pin(SeatStore::free(self, seat, held, vacant))
    }

    fn changed<'a>(&'a self, seat: &'a SeatName, seen: &'a Seen) -> BoxFuture<'a, Change> {
        Box::pin(SeatStore::changed(self, seat, seen))
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        SeatStore::notes(self)
    }

    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(SeatStore::forget(self, seat))
    }

    fn list_seats(&self) -> BoxFuture<'_, Result<Vec<SeatName>, StoreError>> {
        Box::pin(SeatStore::list_seats(self))
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        SeatStore::lifeline(self, seat)
    }
}

/// A boxed store is a store, and can be used like any other.
#[deny(clippy::missing_trait_methods)]
impl SeatStore for Box<dyn DynSeatStore> {
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

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        (**self).free(seat, held, vacant).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        (**self).changed(seat, seen).await
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

/// Handles all seats of a call separately and concurrently.
impl<S: SeatStore> Store for S {
    fn promises(&self) -> Promises {
        SeatStore::promises(self)
    }

    fn attach(&self, clock: &Clock, news: &News) {
        SeatStore::attach(self, clock);
        if SeatStore::promises(self).push != Push::None {
            // `changed` also reports changes from before its call, so nothing is missed from now on.
            news.listening(Scope::All);
        }
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let each = seats.iter().enumerate().map(async |(at, seat)| to.set(at, SeatStore::read(self, seat).await));
        join_all(each).await;
        Ok(())
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let each = writes.iter().enumerate().map(async |(at, Write { seat, expect, record })| {
            let answer = match expect {
                Expect::Absent(_) => self.swap(seat, None, record).await,
                Expect::Version(version) => self.swap(seat, Some(version), record).await,
                Expect::Held(version) => self.renew(seat, version, record).await,
                Expect::HolderDead(version) => self.free(seat, version, record).await,
            };
            to.set(at, answer);
        });
        join_all(each).await;
        Ok(())
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        news.listening(Scope::All);
        let mut changes = FuturesUnordered::new();
        let mut watched = BTreeMap::new();
        loop {
            tokio::select! {
                biased;
                // First, so that a change of a seat that is no longer watched is not reported.
                deltas = interest.next() => for InterestChange { seat, wanted } in deltas {
                    // Cancels the former watch of this seat.
                    watched.remove(&seat);
                    if let Some(seen) = wanted.and_then(|wanted| wanted.seen) {
                        let (abort, registration) = AbortHandle::new_pair();
                        watched.insert(seat.clone(), AbortOnDrop(abort));
                        changes.push(Abortable::new(Box::pin(change_of(self, seat, seen)), registration));
                    }
                },
                Some(change) = changes.next() => match change {
                    Ok((seat, Change::SessionOver)) => news.lost(&seat),
                    Ok((seat, Change::Request)) => news.request(&seat),
                    Ok((seat, Change::Look)) => news.holder(&seat, PushDetail::Nothing),
                    Err(Aborted) => {}
                },
            }
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        SeatStore::notes(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        SeatStore::forget(self, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        SeatStore::list_seats(self).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        SeatStore::lifeline(self, seat)
    }
}

/// Waits for a change of a seat. If the store panics, the candidate reads the seat.
async fn change_of<S: SeatStore>(store: &S, seat: SeatName, seen: Seen) -> (SeatName, Change) {
    let change = AssertUnwindSafe(async { store.changed(&seat, &seen).await }).catch_unwind().await;
    (seat, change.unwrap_or(Change::Look))
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
