//! Stores that deal with one seat at a time.

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

/// A store that deals with one seat at a time. Every one is a [`Store`].
///
/// Write plain `async fn`s. Every call runs on the engine's thread and is dropped when it takes
/// longer than `call_timeout`, so a call must never block the thread, and a dropped one must
/// leave nothing locked. There must be no retries inside: they would hide when a write was sent,
/// and the engine retries by itself.
pub trait SeatStore: Send + Sync + 'static {
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
    ///
    /// A store whose readings have an identity should be a [`Store`]: a bid on absence is then told by which data the seat was
    /// absent ([`Expect::Absent`]).
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

    /// The store's notes, if it can keep any.
    fn notes(&self) -> Option<&dyn DynNotes> {
        None
    }

    /// Removes a seat and its notes, but keeps the number that its tokens must stay above. For
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

/// [`SeatStore`] behind a pointer. Every store is one.
pub trait DynSeatStore: Send + Sync + 'static {
    /// See [`SeatStore::promises`].
    fn promises(&self) -> Promises;
    /// See [`SeatStore::attach`].
    fn attach(&self, clock: &Clock);
    /// See [`SeatStore::read`].
    fn read<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<Reading, StoreError>>;
    /// See [`SeatStore::swap`].
    fn swap<'a>(
        &'a self,
        seat: &'a SeatName,
        expected: Option<&'a Version>,
        next: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// See [`SeatStore::renew`].
    fn renew<'a>(
        &'a self,
        seat: &'a SeatName,
        held: &'a Version,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, StoreError>>;
    /// See [`SeatStore::changed`].
    fn changed<'a>(&'a self, seat: &'a SeatName, seen: &'a Seen) -> BoxFuture<'a, Change>;
    /// See [`SeatStore::notes`].
    fn notes(&self) -> Option<&dyn DynNotes>;
    /// See [`SeatStore::forget`].
    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`SeatStore::lifeline`].
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

    fn changed<'a>(&'a self, seat: &'a SeatName, seen: &'a Seen) -> BoxFuture<'a, Change> {
        Box::pin(SeatStore::changed(self, seat, seen))
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        SeatStore::notes(self)
    }

    fn forget<'a>(&'a self, seat: &'a SeatName) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(SeatStore::forget(self, seat))
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        SeatStore::lifeline(self, seat)
    }
}

/// A store behind a pointer is a store: what `connect` returns can be handed on like any other.
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

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        (**self).changed(seat, seen).await
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

/// Each seat of a call is dealt with by itself, all at the same time.
impl<S: SeatStore> Store for S {
    fn promises(&self) -> Promises {
        SeatStore::promises(self)
    }

    fn attach(&self, clock: &Clock, news: &News) {
        SeatStore::attach(self, clock);
        if SeatStore::promises(self).push != Push::None {
            // `changed` tells what has changed before it began, too: nothing is missed from here on.
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
                // First: what is not watched for any more is no news.
                deltas = interest.next() => for InterestChange { seat, wanted } in deltas {
                    // What it was watched for so far is dropped.
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

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        SeatStore::lifeline(self, seat)
    }
}

/// Waits for a change of a seat. A store that panics has nothing to say but that it must be looked at.
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
