//! A store that can block the thread of its caller.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure_core::{
    Answers, Board, Call, Clock, DynNotes, DynStore, Interest, Lifeline, News, Note, NoteState, NoteWrite, Notes,
    Promises, Reading, SeatName, SessionId, Store, StoreError, Swap, Version, Write,
};
use tokio::sync::watch;

use super::cuttable::notes_of;

/// A store that blocks the thread of its caller while its [`Brake`] is on. For an engine, this is as if its process
/// were paused.
#[derive(Debug)]
pub struct Blocking<S> {
    store: S,
    brake: Brake,
}

/// The switch of a [`Blocking`] store. Clones are the same switch.
#[derive(Clone, Debug)]
pub struct Brake(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    on: Mutex<bool>,
    off: Condvar,
    blocked: watch::Sender<bool>,
}

/// The longest time that a thread is blocked, so that a failed test ends.
const LONGEST: Duration = Duration::from_secs(120);

impl<S: Store> Blocking<S> {
    /// Wraps this store, and returns it with the switch that blocks it.
    pub fn new(store: S) -> (Self, Brake) {
        let shared = Shared { on: Mutex::new(false), off: Condvar::new(), blocked: watch::Sender::new(false) };
        let brake = Brake(Arc::new(shared));
        (Self { store, brake: brake.clone() }, brake)
    }
}

impl Brake {
    /// Turns the brake on: the next call blocks its thread.
    pub fn pull(&self) {
        *self.lock() = true;
    }

    /// Turns the brake off and resumes the blocked thread.
    pub fn release(&self) {
        *self.lock() = false;
        self.0.off.notify_all();
    }

    /// Waits until a call has blocked its thread.
    pub async fn blocked(&self) {
        // This fails only if the sender is dropped, and `self` holds the sender.
        let _ = self.0.blocked.subscribe().wait_for(|blocked| *blocked).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.0.on.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn pass(&self) {
        let on = self.lock();
        if *on {
            self.0.blocked.send_replace(true);
            let _released = self.0.off.wait_timeout_while(on, LONGEST, |on| *on);
            self.0.blocked.send_replace(false);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Blocking<S> {
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
        self.brake.pass();
        Store::read(&self.store, call, seats, to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        self.brake.pass();
        Store::write(&self.store, call, writes, to).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        Store::session_of(&self.store, version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.brake.pass();
        Store::watch(&self.store, interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Store::notes(&self.store).map(|_| self as &dyn DynNotes)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.brake.pass();
        Store::forget(&self.store, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.brake.pass();
        Store::list_seats(&self.store).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        Store::lifeline(&self.store, seat)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Notes for Blocking<S> {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        self.brake.pass();
        notes_of(&self.store as &dyn DynStore)?.write(notes, to).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        self.brake.pass();
        notes_of(&self.store as &dyn DynStore)?.list(boards, to).await
    }
}
