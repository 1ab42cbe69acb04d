//! Stores and listeners that misbehave affect no other election.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::Stream;
use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, Board, Change, Clock, DynNotes, Election, Elections, EventKind, LifeKind, ManualClock, Note, NoteState,
    NoteWrite, Notes, Promises, Reading, Record, SeatName, SeatStore, Seen, StoreError, Swap, Version,
};

const LEASE: Duration = Duration::from_secs(15);

/// A store that panics before it returns a future if `panics` is set, never answers for seats whose name begins with
/// `slow`, and loses the answers when it removes notes.
struct Nasty {
    store: MemoryStore,
    panics: Arc<AtomicBool>,
}

impl Nasty {
    fn panic_once(&self) {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "on purpose");
    }
}

async fn unless_slow<T>(seat: &SeatName, answer: impl Future<Output = T>) -> T {
    if seat.as_str().starts_with("slow") {
        std::future::pending::<()>().await;
    }
    answer.await
}

#[deny(clippy::missing_trait_methods)]
impl SeatStore for Nasty {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    fn read(&self, seat: &SeatName) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        self.panic_once();
        unless_slow(seat, self.store.read(seat))
    }

    fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        self.panic_once();
        unless_slow(seat, self.store.swap(seat, expected, next))
    }

    fn renew(
        &self,
        seat: &SeatName,
        held: &Version,
        record: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        self.panic_once();
        unless_slow(seat, self.store.renew(seat, held, record))
    }

    fn free(
        &self,
        seat: &SeatName,
        held: &Version,
        vacant: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        self.panic_once();
        unless_slow(seat, self.store.free(seat, held, vacant))
    }

    fn changed(&self, seat: &SeatName, seen: &Seen) -> impl Future<Output = Change> + Send {
        self.store.changed(seat, seen)
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.store.list_seats().await
    }

    fn lifeline(&self, _: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        Ok(None)
    }
}

impl Notes for Nasty {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let removes = notes.iter().any(|note| note.value.is_none());
        Notes::write(&self.store, notes, &if removes { Answers::new(|_, _| {}) } else { to.clone() }).await?;
        if removes { Err(StoreError::unknown("the answer was lost")) } else { Ok(()) }
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        Notes::list(&self.store, boards, to).await
    }
}

fn nasty() -> (ManualClock, Elections, Arc<AtomicBool>) {
    let clock = ManualClock::new();
    let (elections, panics) = nasty_over(&Memory::of_kind(LifeKind::Clock, clock.clone()), &clock);
    (clock, elections, panics)
}

fn nasty_over(memory: &Memory, clock: &ManualClock) -> (Elections, Arc<AtomicBool>) {
    let panics = Arc::new(AtomicBool::new(false));
    let nasty = Nasty { store: memory.store(), panics: panics.clone() };
    (Elections::with_clock(nasty, clock.clone()), panics)
}

#[test]
fn a_store_that_panics_costs_no_term() {
    let (clock, elections, panics) = nasty();
    let election = elections.election("jobs").start().unwrap();
    clock.settle();
    let token = election.term().unwrap().token();
    for _ in 0..4 {
        panics.store(true, Ordering::SeqCst);
        clock.advance(LEASE);
        assert!(!panics.load(Ordering::SeqCst), "it was called");
        assert_eq!(election.term().unwrap().token(), token);
    }
}

#[test]
fn calls_that_hang_cost_no_other_election_its_term_or_its_calls() {
    let (clock, elections, _) = nasty();
    let start = |name: &str, number: u32| elections.election(format!("{name}-{number}")).start().unwrap();
    let fine: Vec<Election> = (0..20).map(|number| start("fine", number)).collect();
    clock.settle();
    let tokens: Vec<_> = fine.iter().map(|election| election.term().unwrap().token()).collect();
    // More calls than can be in flight at once.
    let slow: Vec<Election> = (0..1200).map(|number| start("slow", number)).collect();
    for _ in 0..12 {
        clock.advance(LEASE / 3);
        let now: Vec<_> = fine.iter().filter_map(|election| election.term()).map(|term| term.token()).collect();
        assert_eq!(now, tokens);
    }
    let late = start("late", 0);
    clock.advance(LEASE);
    assert!(late.is_leader() && slow.iter().all(|election| election.leader().is_none()));
}

/// The read after a lost answer to a renewal must not queue behind the reads of elections that hold no seat.
#[test]
fn reads_that_hang_cost_no_leader_its_term_when_a_renewal_answer_is_lost() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let (elections, _) = nasty_over(&memory, &clock);
    let leader = elections.election("fine").start().unwrap();
    clock.settle();
    let token = leader.term().unwrap().token();
    let slow: Vec<Election> =
        (0..10_000).map(|number| elections.election(format!("slow-{number}")).start().unwrap()).collect();
    clock.settle();
    // No call of a slow election reaches the memory, so the leader's next renewal loses its answer.
    let renewed = memory.calls().renewals;
    memory.lose_next_answer();
    for _ in 0..12 {
        clock.advance(LEASE / 6);
        assert_eq!(leader.term().map(|term| term.token()), Some(token));
    }
    assert!(memory.calls().renewals >= renewed + 3, "the lost answer was followed by further renewals");
    assert!(slow.iter().all(|election| election.leader().is_none()));
}

#[test]
fn a_request_is_obeyed_even_if_its_removal_is_not_confirmed() {
    let (clock, elections, _) = nasty();
    let election = elections.election("jobs").start().unwrap();
    clock.settle();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(election.request_step_down()).unwrap().is_some());
    clock.settle();
    assert!(!election.is_leader());
}

/// Wakers are user code that runs on the engine's thread.
#[test]
fn a_waker_can_call_methods_of_the_election() {
    struct Asks(OnceLock<Election>, AtomicBool);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            if let Some(election) = self.0.get() {
                let _ = (election.leader(), election.term(), election.events());
                self.1.store(true, Ordering::SeqCst);
            }
        }
    }
    let (clock, elections, _) = nasty();
    let election = elections.election("jobs").manual().start().unwrap();
    clock.settle();
    let asks = Arc::new(Asks(OnceLock::new(), AtomicBool::new(false)));
    asks.0.set(election.clone()).unwrap();
    let waker = Waker::from(asks.clone());
    let mut events = election.events();
    assert!(std::pin::Pin::new(&mut events).poll_next(&mut Context::from_waker(&waker)).is_pending());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let term = runtime.block_on(election.try_acquire()).unwrap();
    assert!(term.is_some());
    assert!(asks.1.load(Ordering::SeqCst), "it was woken");
    assert!(
        matches!(runtime.block_on(events.next()), Some(event) if matches!(event.kind, EventKind::BecameLeader { .. }))
    );
}
