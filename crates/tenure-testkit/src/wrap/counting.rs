//! A store that counts its calls.

use tenure_core::{
    Answers, Board, Call, Clock, DynNotes, DynStore, Expect, Interest, Lifeline, News, Note, NoteState, NoteWrite,
    Notes, Promises, Reading, SeatName, SessionId, Store, StoreError, Swap, Version, Write,
};
use tokio::sync::watch;

use super::cuttable::notes_of;

/// A store that counts its calls, when each call begins.
#[derive(Debug)]
pub struct Counting<S> {
    store: S,
    counts: watch::Sender<Counts>,
}

/// The number of calls to a store, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads of a seat, whether they were answered or not.
    pub reads: u64,
    /// Conditional writes of a seat, other than renewals.
    pub swaps: u64,
    /// Renewals of a seat, whether they succeeded or not.
    pub renewals: u64,
    /// Seats whose read succeeded. From its first answer on, a candidate is notified of changes.
    pub looks: u64,
    /// Calls that read or write seats. Several seats can share a call.
    pub calls: u64,
    /// Notes that were written, plus boards that were listed.
    pub notes: u64,
    /// The written notes that announce a process or its candidates.
    pub announcing: u64,
    /// Watches that were started: the first one, and one more each time a watch has ended.
    pub watches: u64,
}

impl Counts {
    /// Returns how many reads were answered since `before`, without those that a new watch explains: up to three each. On a
    /// busy machine a read can time out and be repeated, and a watch can be replaced because it seems to be silent.
    pub fn regular_reads_since(&self, before: &Self) -> u64 {
        (self.looks - before.looks).saturating_sub(3 * (self.watches - before.watches))
    }
}

/// Reads the counts of a [`Counting`] store. Clones read the same counts.
#[derive(Clone, Debug)]
pub struct Counter(watch::Receiver<Counts>);

impl Counter {
    /// Returns the counts of all calls that have begun so far.
    pub fn counts(&self) -> Counts {
        *self.0.borrow()
    }

    /// Waits until the counts satisfy this condition.
    pub async fn wait_for(&self, enough: impl FnMut(&Counts) -> bool) {
        // This fails only if the store is dropped, and then the counts never change again.
        if self.0.clone().wait_for(enough).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Store> Counting<S> {
    /// Wraps this store, and returns it with the reader of its counts.
    pub fn new(store: S) -> (Self, Counter) {
        let (counts, counter) = watch::channel(Counts::default());
        (Self { store, counts }, Counter(counter))
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(count);
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Counting<S> {
    fn promises(&self) -> Promises {
        Store::promises(&self.store)
    }

    fn attach(&self, clock: &Clock, news: &News) {
        Store::attach(&self.store, clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        Store::shard(&self.store, seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.count(|counts| (counts.calls, counts.reads) = (counts.calls + 1, counts.reads + seats.len() as u64));
        let (counts, to) = (self.counts.clone(), to.clone());
        let to = Answers::new(move |place, answer: Result<_, _>| {
            let answered = u64::from(answer.is_ok());
            to.set(place, answer);
            counts.send_modify(|counts| counts.looks += answered);
        });
        Store::read(&self.store, call, seats, &to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let renewals = writes.iter().filter(|write| matches!(write.expect, Expect::Held(_))).count() as u64;
        self.count(|counts| {
            counts.calls += 1;
            counts.renewals += renewals;
            counts.swaps += writes.len() as u64 - renewals;
        });
        Store::write(&self.store, call, writes, to).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        Store::session_of(&self.store, version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.count(|counts| counts.watches += 1);
        Store::watch(&self.store, interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Store::notes(&self.store).map(|_| self as &dyn DynNotes)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        Store::forget(&self.store, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        Store::list_seats(&self.store).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Store::lifeline(&self.store, seat)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Notes for Counting<S> {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let announces = |board: &Board| !matches!(board, Board::Requests(_));
        let announcing = notes.iter().filter(|note| announces(&note.board)).count() as u64;
        self.count(|counts| {
            counts.notes += notes.len() as u64;
            counts.announcing += announcing;
        });
        notes_of(&self.store as &dyn DynStore)?.write(notes, to).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        self.count(|counts| counts.notes += boards.len() as u64);
        notes_of(&self.store as &dyn DynStore)?.list(boards, to).await
    }
}
