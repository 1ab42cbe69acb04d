//! A store that counts the calls made to it.

use std::time::Duration;

use tenure_core::{
    Attended, Board, Change, Clock, DynBoard, DynStore, Incarnation, Note, NoteKind, Promises, Reading, Record,
    SeatName, Seen, Store, StoreError, Swap, Version,
};
use tokio::sync::watch;

use super::cuttable::on_board;

/// A store that counts the calls made to it, as they come in.
#[derive(Debug)]
pub struct Counting<S> {
    store: S,
    counts: watch::Sender<Counts>,
}

/// How many calls were made to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Readings of a seat.
    pub reads: u64,
    /// Conditional writes of a seat, other than renewals.
    pub swaps: u64,
    /// Renewals.
    pub renewals: u64,
    /// Watches.
    pub watches: u64,
    /// Calls to the board.
    pub notes: u64,
    /// Those among them by which a process announces itself and its candidates.
    pub announcing: u64,
}

/// Reads what a [`Counting`] store has counted. Clones read the same.
#[derive(Clone, Debug)]
pub struct Counter(watch::Receiver<Counts>);

impl Counter {
    /// The calls so far.
    pub fn counts(&self) -> Counts {
        *self.0.borrow()
    }

    /// Resolves once the counts are like this.
    pub async fn wait_for(&self, enough: impl FnMut(&Counts) -> bool) {
        // Fails only if the store is gone; then there is nothing more to come.
        if self.0.clone().wait_for(enough).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Store> Counting<S> {
    /// This store, and what it counts.
    pub fn new(store: S) -> (Self, Counter) {
        let (counts, counter) = watch::channel(Counts::default());
        (Self { store, counts }, Counter(counter))
    }

    fn count(&self, which: impl FnOnce(&mut Counts) -> &mut u64) {
        self.counts.send_modify(|counts| *which(counts) += 1);
    }

    fn count_note(&self, announces: bool) {
        self.counts.send_modify(|counts| {
            counts.notes += 1;
            counts.announcing += u64::from(announces);
        });
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Counting<S> {
    fn promises(&self) -> Promises {
        Store::promises(&self.store)
    }

    fn attach(&self, clock: &Clock) {
        Store::attach(&self.store, clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.count(|counts| &mut counts.reads);
        Store::read(&self.store, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.count(|counts| &mut counts.swaps);
        Store::swap(&self.store, seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.count(|counts| &mut counts.renewals);
        Store::renew(&self.store, seat, held, record).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.count(|counts| &mut counts.watches);
        Store::changed(&self.store, seat, seen).await
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Store::board(&self.store).map(|_| self as &dyn DynBoard)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        Store::forget(&self.store, seat).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        Store::lifeline(&self.store, seat)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Board for Counting<S> {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        self.count_note(note.kind == NoteKind::Announcement);
        on_board(&self.store as &dyn DynStore, |board| board.put(seat, note)).await
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        self.count_note(true);
        on_board(&self.store as &dyn DynStore, |board| board.attend(process, lifetime)).await
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        self.count_note(false);
        on_board(&self.store as &dyn DynStore, |board| board.list(seat, kind)).await
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        self.count_note(kind == NoteKind::Announcement);
        on_board(&self.store as &dyn DynStore, |board| board.remove(seat, kind, key)).await
    }
}
