//! A store whose connection a test can cut.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::{
    Answers, Board, Call, Clock, DynNotes, DynStore, Interest, Lifeline, News, Note, NoteState, NoteWrite, Notes,
    Promises, Reading, Scope, SeatName, SessionId, Store, StoreError, Swap, Version, Write,
};
use tokio::sync::watch;

/// The treatment of calls to a [`Cuttable`] store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Traffic {
    /// Calls reach the store, and their answers reach the caller.
    #[default]
    Pass,
    /// Calls wait until the treatment changes, and then follow the new one.
    Wait,
    /// Calls never reach the store, and are never answered.
    Hang,
    /// Calls do not reach the store, and fail as refused.
    Refuse,
    /// Calls reach the store, but their outcome is reported as unknown.
    LoseAnswers,
}

/// A store whose connection a test can cut with a [`Wire`].
#[derive(Debug)]
pub struct Cuttable {
    wire: Wire,
    promises: Promises,
    has_notes: bool,
}

/// The switch of a [`Cuttable`]. Clones are the same switch.
#[derive(Clone)]
pub struct Wire(Arc<Shared>);

struct Shared {
    /// `None` after a crash.
    store: Mutex<Option<Arc<dyn DynStore>>>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    reads: Traffic,
    writes: Traffic,
    crashed: bool,
}

impl Cuttable {
    /// Wraps this store, and returns it with the switch that cuts it off.
    pub fn new(store: impl Store) -> (Self, Wire) {
        let promises = Store::promises(&store);
        let has_notes = Store::notes(&store).is_some();
        let shared = Shared { store: Mutex::new(Some(Arc::new(store))), state: watch::Sender::default() };
        let wire = Wire(Arc::new(shared));
        (Self { wire: wire.clone(), promises, has_notes }, wire)
    }
}

impl Wire {
    /// Sets the treatment of all calls from now on, including those that wait.
    pub fn set(&self, traffic: Traffic) {
        self.0.state.send_modify(|state| (state.reads, state.writes) = (traffic, traffic));
    }

    /// Sets the treatment of writes of seats and notes. Reads are not affected.
    pub fn set_writes(&self, traffic: Traffic) {
        self.0.state.send_modify(|state| state.writes = traffic);
    }

    /// Drops the connection, as the end of its process would. Calls in flight and all later calls are never answered.
    pub fn crash(&self) {
        self.0.state.send_modify(|state| state.crashed = true);
        // Dropped outside of the lock, because closing can take long.
        let store = self.store().take();
        drop(store);
    }

    fn store(&self) -> MutexGuard<'_, Option<Arc<dyn DynStore>>> {
        self.0.store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn crashed(&self) {
        let mut state = self.0.state.subscribe();
        // This fails only if the sender is dropped, and `self` holds the sender.
        let _ = state.wait_for(|state| state.crashed).await;
    }

    /// Makes a call, treated as the switch says.
    async fn pass<T, F>(&self, writes: bool, call: impl FnOnce(Arc<dyn DynStore>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.pass_or_lose(writes, |store, _| call(store)).await
    }

    /// Makes a call that gets to know whether its answer is to be lost.
    async fn pass_or_lose<T, F>(
        &self,
        writes: bool,
        call: impl FnOnce(Arc<dyn DynStore>, bool) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let traffic = |state: &State| if writes { state.writes } else { state.reads };
        let mut state = self.0.state.subscribe();
        let traffic = state.wait_for(|state| traffic(state) != Traffic::Wait).await.map(|state| traffic(&state));
        // This fails only if the sender is dropped, and `self` holds the sender.
        let traffic = traffic.unwrap_or(Traffic::Hang);
        match traffic {
            Traffic::Refuse => return Err(StoreError::refused("the test refuses this call")),
            Traffic::Pass | Traffic::LoseAnswers => {}
            Traffic::Hang | Traffic::Wait => return std::future::pending().await,
        }
        let lost = traffic == Traffic::LoseAnswers;
        let store = self.store().clone();
        let answer = match store {
            Some(store) => self.unless_crashed(call(store, lost)).await,
            None => None,
        };
        match answer {
            None => std::future::pending().await,
            Some(_) if lost => Err(StoreError::unknown("the answer was lost")),
            Some(answer) => answer,
        }
    }

    /// Waits for a call; `None` if the connection crashes first, which drops the call.
    async fn unless_crashed<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.crashed() => None,
            answer = call => Some(answer),
        }
    }

    /// Watches until the connection is cut. The caller watches again once the connection works.
    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        let is_good = |state: &State| matches!(state.reads, Traffic::Pass | Traffic::LoseAnswers);
        let mut state = self.0.state.subscribe();
        // This fails only if the sender is dropped, and `self` holds the sender.
        drop(state.wait_for(is_good).await);
        let store = self.store().clone();
        let Some(store) = store else { return std::future::pending().await };
        tokio::select! {
            biased;
            () = self.crashed() => return std::future::pending().await,
            () = async { drop(state.wait_for(|state| !is_good(state)).await) } => {}
            ended = store.watch(interest, news) => return ended,
        }
        drop(store);
        news.gap(Scope::All);
        drop(state.wait_for(is_good).await);
        StoreError::refused("the connection was cut")
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Wire").field(&*self.0.state.borrow()).finish()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Cuttable {
    fn promises(&self) -> Promises {
        self.promises.clone()
    }

    fn attach(&self, clock: &Clock, news: &News) {
        if let Some(store) = self.wire.store().as_ref() {
            store.attach(clock, news);
        }
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        self.wire.store().as_ref().map_or(0, |store| store.shard(seat))
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let read = async |store: Arc<dyn DynStore>, lost| store.read(call, seats, &unless(lost, to)).await;
        self.wire.pass_or_lose(false, read).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let write = async |store: Arc<dyn DynStore>, lost| store.write(call, writes, &unless(lost, to)).await;
        self.wire.pass_or_lose(true, write).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        self.wire.store().as_ref().and_then(|store| store.session_of(version))
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.wire.watch(interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.has_notes.then_some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.wire.pass(true, async |store| store.forget(seat).await).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.wire.pass(false, async |store| store.list_seats().await).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        self.wire.store().as_ref().map_or(Ok(None), |store| store.lifeline(seat))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Notes for Cuttable {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let write = async |store: Arc<dyn DynStore>, lost| notes_of(&*store)?.write(notes, &unless(lost, to)).await;
        self.wire.pass_or_lose(true, write).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        let list = async |store: Arc<dyn DynStore>, lost| notes_of(&*store)?.list(boards, &unless(lost, to)).await;
        self.wire.pass_or_lose(false, list).await
    }
}

/// Returns a receiver that forwards answers unless they are to be lost.
fn unless<T: 'static>(lost: bool, to: &Answers<T>) -> Answers<T> {
    if lost { Answers::new(|_, _| {}) } else { to.clone() }
}

/// Returns the notes of the store, or an error if it has none.
pub(super) fn notes_of(store: &dyn DynStore) -> Result<&dyn DynNotes, StoreError> {
    store.notes().ok_or_else(|| StoreError::denied("the store has no notes"))
}
