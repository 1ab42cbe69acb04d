//! A store that blocks the thread which calls it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tenure_core::{
    Attended, Board, Change, Clock, DynBoard, DynStore, Incarnation, Note, NoteKind, Promises, Reading, Record,
    SeatName, Seen, Store, StoreError, Swap, Version,
};
use tokio::sync::watch;

use super::cuttable::on_board;

/// A store that blocks the thread which calls it while its [`Brake`] is on: to an engine, that is
/// as if its process were paused.
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

/// A thread is never blocked for longer than this, so that a test that has failed comes to an end.
const LONGEST: Duration = Duration::from_secs(120);

impl<S: Store> Blocking<S> {
    /// This store, and the switch to block it with.
    pub fn new(store: S) -> (Self, Brake) {
        let shared = Shared { on: Mutex::new(false), off: Condvar::new(), blocked: watch::Sender::new(false) };
        let brake = Brake(Arc::new(shared));
        (Self { store, brake: brake.clone() }, brake)
    }
}

impl Brake {
    /// Blocks the thread of the next call.
    pub fn pull(&self) {
        *self.lock() = true;
    }

    /// Lets go.
    pub fn release(&self) {
        *self.lock() = false;
        self.0.off.notify_all();
    }

    /// Resolves when a thread is blocked.
    pub async fn blocked(&self) {
        // Fails only if the switch is gone, which it is not.
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

    fn attach(&self, clock: &Clock) {
        Store::attach(&self.store, clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.brake.pass();
        Store::read(&self.store, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.brake.pass();
        Store::swap(&self.store, seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.brake.pass();
        Store::renew(&self.store, seat, held, record).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.brake.pass();
        Store::changed(&self.store, seat, seen).await
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Store::board(&self.store).map(|_| self as &dyn DynBoard)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.brake.pass();
        Store::forget(&self.store, seat).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        Store::lifeline(&self.store, seat)
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Board for Blocking<S> {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        self.brake.pass();
        on_board(&self.store as &dyn DynStore, |board| board.put(seat, note)).await
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        self.brake.pass();
        on_board(&self.store as &dyn DynStore, |board| board.attend(process, lifetime)).await
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        self.brake.pass();
        on_board(&self.store as &dyn DynStore, |board| board.list(seat, kind)).await
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        self.brake.pass();
        on_board(&self.store as &dyn DynStore, |board| board.remove(seat, kind, key)).await
    }
}
