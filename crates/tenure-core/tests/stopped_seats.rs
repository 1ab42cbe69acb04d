//! A stopped election releases its seat, even if another election keeps the session of the process alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Change, Clock, DynNotes, Elections, LifeKind, ManualClock, Observer, Promises, Reading, Record, SeatName,
    SeatStore, Seen, StoreError, Swap, Version,
};

const LEASE: Duration = Duration::from_secs(15);

/// A store that fails all calls about one seat while `fails` is set.
struct Failing {
    store: MemoryStore,
    seat: &'static str,
    fails: Arc<AtomicBool>,
}

impl Failing {
    fn check(&self, seat: &SeatName) -> Result<(), StoreError> {
        match self.fails.load(Ordering::SeqCst) && seat.as_str() == self.seat {
            true => Err(StoreError::refused("this seat cannot be reached")),
            false => Ok(()),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl SeatStore for Failing {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.check(seat)?;
        self.store.read(seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.check(seat)?;
        self.store.swap(seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.check(seat)?;
        self.store.renew(seat, held, record).await
    }

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        self.check(seat)?;
        self.store.free(seat, held, vacant).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.store.changed(seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.store.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.store.list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.store.lifeline(seat)
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_stopped_election_releases_its_seat_once_the_store_works_again_on_every_kind_of_store() {
    releases_its_seat(|_| None);
}

#[test]
fn an_observer_of_a_stopped_election_does_not_keep_it_from_releasing_its_seat() {
    releases_its_seat(|elections| Some(elections.observe("stopped").unwrap()));
}

/// Another election of the process keeps the session alive, and with it all seats that the session holds.
fn releases_its_seat(observe: impl Fn(&Elections) -> Option<Observer>) {
    for kind in [LifeKind::Observe, LifeKind::Clock, LifeKind::Session, LifeKind::Lock] {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(kind, clock.clone());
        let fails = Arc::new(AtomicBool::new(false));
        let store = Failing { store: memory.store(), seat: "stopped", fails: fails.clone() };
        let one = Elections::with_clock(store, clock.clone());
        let [stopped, stays] = ["stopped", "stays"].map(|name| one.election(name).start().unwrap());
        clock.settle();
        assert!(stopped.is_leader() && stays.is_leader());
        let token = stays.term().unwrap().token();

        fails.store(true, Ordering::SeqCst);
        stopped.stop();
        clock.advance(LEASE * 3);
        assert!(!stopped.is_leader());
        let _observer = observe(&one);
        clock.settle();
        fails.store(false, Ordering::SeqCst);
        clock.advance(LEASE);

        let other = Elections::with_clock(memory.store(), clock.clone());
        let next = other.election("stopped").start().unwrap();
        clock.advance(LEASE * 2);
        let look = block_on(one.look("stopped")).unwrap();
        assert!(next.is_leader(), "{kind:?}: the seat of a stopped election is still held: {look:?}");
        assert_eq!(stays.term().map(|term| term.token()), Some(token), "{kind:?}");
        block_on(stopped.stopped());
    }
}
