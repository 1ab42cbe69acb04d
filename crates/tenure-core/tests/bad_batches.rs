//! Stores that make mistakes in calls about several seats, or in notifications, affect only the seats concerned.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, BatchLimits, BoxFuture, Call, Clock, DynNotes, Election, Elections, Error, EventKind, Events, Expect,
    Fault, Interest, LifeKind, ManualClock, News, Promises, PushDetail, Reading, Scope, SeatName, SeatStore, Store,
    StoreError, Swap, Write,
};

const LEASE: Duration = Duration::from_secs(15);
const MANY: usize = 40;

/// A mistake of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It does not answer for odd seats.
    Silent,
    /// It answers twice, and for seats that are not in the call.
    Eager,
    /// It panics when it reaches an odd seat.
    Panics,
    /// It fails the whole call because of an odd seat, and marks the error so.
    BlamesOne,
    /// Its calls about odd seats never end.
    Slow,
    /// It never listens.
    Deaf,
    /// Its first watch ends at once.
    Quits,
    /// All its watches end as soon as they listen.
    Fickle,
    /// It reports changes of unknown seats, and the same changes again and again.
    Floods,
}

/// A store that takes many seats in one call, and has a flaw with seats whose name begins with `odd`.
struct Batching {
    store: MemoryStore,
    flaw: Flaw,
    /// Calls wait until this is true.
    is_open: tokio::sync::watch::Receiver<bool>,
    is_bad: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    seats: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
    news: Arc<Mutex<Option<News>>>,
}

fn is_odd(seat: &SeatName) -> bool {
    seat.as_str().starts_with("odd")
}

impl Batching {
    /// Handles the seats of a call one by one, with the flaw.
    async fn each<'a, T>(
        &'a self,
        seats: &[SeatName],
        to: &Answers<T>,
        act: impl Fn(usize) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.seats.fetch_add(seats.len(), Ordering::SeqCst);
        let _ = self.is_open.clone().wait_for(|is_open| *is_open).await;
        let bad = self.is_bad.load(Ordering::SeqCst);
        if bad && self.flaw == Flaw::BlamesOne && seats.iter().any(is_odd) {
            return Err(StoreError::denied("one of them is odd").caused_by_one());
        }
        let (odd, even): (Vec<_>, Vec<_>) = (0..seats.len()).partition(|place| is_odd(&seats[*place]));
        for place in even {
            to.set(place, act(place).await);
        }
        for place in odd {
            match self.flaw {
                Flaw::Silent if bad => {}
                Flaw::Panics if bad => panic!("an odd seat"),
                Flaw::Slow if bad => std::future::pending().await,
                _ => to.set(place, act(place).await),
            }
        }
        if bad && self.flaw == Flaw::Eager {
            for place in 0..2 * seats.len() {
                to.set(place, Err(StoreError::denied("an answer too many")));
            }
        }
        Ok(())
    }
}

impl Store for Batching {
    fn promises(&self) -> Promises {
        let many = BatchLimits { seats: 100, calls: 1 };
        Promises { reads: many, writes: many, ..Store::promises(&self.store) }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        SeatStore::attach(&self.store, clock);
        *self.news.lock().unwrap() = Some(news.clone());
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.each(seats, to, |place| {
            let seat = seats[place].clone();
            Box::pin(async move { SeatStore::read(&self.store, &seat).await })
        })
        .await
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let seats: Vec<_> = writes.iter().map(|write| write.seat.clone()).collect();
        self.each(&seats, to, |place| {
            let Write { seat, expect, record } = writes[place].clone();
            Box::pin(async move {
                match expect {
                    Expect::Absent(_) => self.store.swap(&seat, None, &record).await,
                    Expect::Version(version) => self.store.swap(&seat, Some(&version), &record).await,
                    Expect::Held(version) => self.store.renew(&seat, &version, &record).await,
                    Expect::HolderDead(version) => self.store.free(&seat, &version, &record).await,
                }
            })
        })
        .await
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        if self.flaw == Flaw::Deaf {
            std::future::pending::<()>().await;
        }
        if self.flaw == Flaw::Quits && !self.is_bad.swap(true, Ordering::SeqCst) {
            return StoreError::refused("the watch ends on purpose");
        }
        news.listening(Scope::All);
        if self.flaw == Flaw::Fickle {
            self.watches.fetch_add(1, Ordering::SeqCst);
            return StoreError::refused("the watch ends on purpose");
        }
        // The watch of the memory, as of any store that handles one seat at a time.
        Store::watch(&self.store, interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        SeatStore::notes(&self.store)
    }
}

struct Stage {
    clock: ManualClock,
    memory: Memory,
    elections: Elections,
    running: Vec<Election>,
    is_bad: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    seats: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
    news: Arc<Mutex<Option<News>>>,
}

impl Stage {
    /// Starts many elections that lead, and one more whose seat is odd.
    fn new(flaw: Flaw) -> Self {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
        let (is_bad, calls, seats) = <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let watches = Arc::<AtomicUsize>::default();
        let news = Arc::<Mutex<Option<News>>>::default();
        let (open, is_open) = tokio::sync::watch::channel(false);
        let store = Batching {
            store: memory.store(),
            flaw,
            is_open,
            is_bad: is_bad.clone(),
            calls: calls.clone(),
            seats: seats.clone(),
            watches: watches.clone(),
            news: news.clone(),
        };
        let elections = Elections::with_clock(store, clock.clone());
        let names = (0..MANY).map(|number| format!("job-{number}")).chain(["odd".to_owned()]);
        let running: Vec<_> = names.map(|name| elections.election(name).lease(LEASE).start().unwrap()).collect();
        // The first call is in flight until all elections have started.
        clock.settle();
        open.send(true).unwrap();
        clock.advance(Duration::from_nanos(1));
        assert!(running.iter().all(Election::is_leader));
        Self { clock, memory, elections, running, is_bad, calls, seats, watches, news }
    }

    fn turns_bad(&self) {
        self.is_bad.store(true, Ordering::SeqCst);
    }

    fn odd(&self) -> &Election {
        &self.running[MANY]
    }

    /// Returns the terms of all other elections.
    fn terms(&self) -> Vec<Option<u64>> {
        self.running[..MANY].iter().map(|election| election.term().map(|term| term.token().get())).collect()
    }
}

/// Returns the errors of the store that an election was notified of.
fn errors(events: &mut Events) -> Vec<Fault> {
    let mut faults = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let EventKind::Error { error } = event.kind
            && let Error::Store(error) = &*error
        {
            faults.push(error.fault());
        }
    }
    faults
}

/// Checks that all other elections keep their terms and see no error, that the odd one sees this error and loses its
/// term, and that it leads again later.
fn only_the_odd_election_loses_its_term(flaw: Flaw, error: Fault) {
    let stage = Stage::new(flaw);
    let terms = stage.terms();
    let mut events: Vec<_> = stage.running.iter().map(Election::events).collect();
    stage.turns_bad();
    for _ in 0..12 {
        stage.clock.advance(LEASE / 4);
        assert_eq!(stage.terms(), terms);
    }
    assert!(!stage.odd().is_leader());
    assert_eq!(errors(&mut events[MANY]).first(), Some(&error));
    assert!(events[..MANY].iter_mut().all(|events| errors(events).is_empty()), "another election saw an error");
    stage.is_bad.store(false, Ordering::SeqCst);
    stage.clock.advance(LEASE * 2);
    assert_eq!(stage.terms(), terms);
    assert!(stage.odd().is_leader(), "it leads again once the store works");
}

#[test]
fn a_seat_without_an_answer_has_an_unknown_outcome() {
    only_the_odd_election_loses_its_term(Flaw::Silent, Fault::Unknown);
}

#[test]
fn a_panic_in_a_call_costs_only_the_seats_that_were_not_answered() {
    only_the_odd_election_loses_its_term(Flaw::Panics, Fault::Unknown);
}

#[test]
fn a_slow_seat_delays_no_other_and_times_out_alone() {
    only_the_odd_election_loses_its_term(Flaw::Slow, Fault::Unknown);
}

#[test]
fn a_call_that_fails_because_of_one_seat_is_made_again_without_it() {
    only_the_odd_election_loses_its_term(Flaw::BlamesOne, Fault::Denied);
}

#[test]
fn surplus_answers_are_ignored() {
    let stage = Stage::new(Flaw::Eager);
    let terms = stage.terms();
    stage.turns_bad();
    stage.clock.advance(LEASE * 3);
    assert_eq!(stage.terms(), terms);
    assert!(stage.odd().is_leader());
}

#[test]
fn asks_of_many_elections_share_calls() {
    let stage = Stage::new(Flaw::Silent);
    let (calls, seats) = (stage.calls.load(Ordering::SeqCst), stage.seats.load(Ordering::SeqCst));
    // Each election has read its seat and won it. The first ask has a call alone; the others share calls while it is in
    // flight.
    assert_eq!(seats, 2 * (MANY + 1));
    assert!(calls <= 8, "{calls} calls for {seats} seats");
}

#[test]
fn followers_read_every_third_of_a_lease_if_the_store_never_listens() {
    let stage = Stage::new(Flaw::Deaf);
    stage.running[0].stop();
    let other = Elections::with_clock(stage.memory.store(), stage.clock.clone());
    let leader = other.election("job-0").lease(LEASE).start().unwrap();
    stage.clock.settle();
    assert!(leader.is_leader());
    let deaf = stage.elections.election("job-0").lease(LEASE).start().unwrap();
    stage.clock.settle();
    leader.stop();
    stage.clock.settle();
    assert!(!deaf.is_leader(), "it cannot know yet");
    stage.clock.advance(LEASE * 2 / 5);
    assert!(deaf.is_leader());
}

#[test]
fn a_watch_that_ended_starts_again_even_if_no_election_ran_in_between() {
    let stage = Stage::new(Flaw::Quits);
    stage.running.iter().for_each(Election::stop);
    stage.clock.advance(Duration::from_secs(1));
    let other = Elections::with_clock(stage.memory.store(), stage.clock.clone());
    let leader = other.election("job-0").lease(LEASE).start().unwrap();
    stage.clock.settle();
    let next = stage.elections.election("job-0").lease(LEASE).start().unwrap();
    stage.clock.settle();
    assert!(leader.is_leader() && !next.is_leader());
    leader.stop();
    stage.clock.settle();
    assert!(next.is_leader(), "it is notified at once");
}

#[test]
fn a_watch_that_ends_as_soon_as_it_listens_backs_off() {
    let stage = Stage::new(Flaw::Fickle);
    for _ in 0..60 {
        stage.clock.advance(Duration::from_secs(1));
    }
    let watches = stage.watches.load(Ordering::SeqCst);
    assert!((10..=40).contains(&watches), "{watches} times in a minute");
}

#[test]
fn a_flood_of_notifications_costs_few_reads_and_those_of_other_seats_cost_none() {
    let stage = Stage::new(Flaw::Floods);
    let [strange, known] = ["unknown", "job-0"].map(|name| SeatName::new(name).unwrap());
    let news = stage.news.lock().unwrap().clone().unwrap();
    let before = stage.seats.load(Ordering::SeqCst);
    for _ in 0..10_000 {
        news.holder(&strange, PushDetail::Nothing);
        news.request(&strange);
        news.gap(Scope::Seat(&strange));
        news.holder(&known, PushDetail::Nothing);
    }
    stage.clock.advance(Duration::from_millis(100));
    let reads = stage.seats.load(Ordering::SeqCst) - before;
    assert!((1..=20).contains(&reads), "{reads} seats were read");
    assert_eq!(stage.terms().iter().flatten().count(), MANY);
}

#[test]
fn an_observer_whose_read_hangs_does_not_keep_notifications_from_the_leader_of_its_process() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let [one, other] = [(); 2].map(|()| Elections::with_clock(memory.store(), clock.clone()));
    let leader = one.election("jobs").lease(LEASE).start().unwrap();
    clock.settle();
    let next = other.election("jobs").lease(LEASE).start().unwrap();
    clock.settle();
    memory.hang_next();
    let _observer = one.observe("jobs").unwrap();
    clock.settle();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(next.request_step_down()).unwrap().is_some());
    clock.settle();
    assert!(!leader.is_leader() && next.is_leader());
}

/// A store that answers for one seat from another thread, again and again, until the test ends.
struct Babbling {
    store: MemoryStore,
    goes_on: Arc<AtomicBool>,
    has_begun: Arc<AtomicBool>,
}

impl Store for Babbling {
    fn promises(&self) -> Promises {
        Store::promises(&self.store)
    }

    fn attach(&self, clock: &Clock, _: &News) {
        SeatStore::attach(&self.store, clock);
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        Store::read(&self.store, call, seats, to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        if writes.iter().any(|write| is_odd(&write.seat)) {
            let (to, goes_on, has_begun) = (to.clone(), self.goes_on.clone(), self.has_begun.clone());
            std::thread::spawn(move || {
                while goes_on.load(Ordering::Relaxed) {
                    to.set(0, Ok(Swap::Lost));
                    has_begun.store(true, Ordering::Relaxed);
                }
            });
        }
        Store::write(&self.store, call, writes, to).await
    }
}

#[test]
fn endless_answers_do_not_keep_the_engine_from_other_elections() {
    let (memory, goes_on) = (Memory::new(), Arc::new(AtomicBool::new(true)));
    let has_begun = Arc::<AtomicBool>::default();
    let store = Babbling { store: memory.store(), goes_on: goes_on.clone(), has_begun: has_begun.clone() };
    let elections = Elections::new(store);
    let _odd = elections.election("odd").lease(LEASE).start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        while !has_begun.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let other = elections.election("other").lease(LEASE).start().unwrap();
        let elected = tokio::time::timeout(Duration::from_secs(60), other.elected()).await;
        goes_on.store(false, Ordering::Relaxed);
        elected.expect("the engine is kept busy by surplus answers").unwrap();
    });
}
