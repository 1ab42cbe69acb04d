//! Requests that wait for a place in a call: they do not time out before they are sent, and elections with different
//! leases share no call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, BatchLimits, Call, Clock, Election, Elections, Expect, LifeKind, ManualClock, News, Promises, Reading,
    SeatName, SeatStore, Store, StoreError, Swap, Write,
};
use tokio::sync::Semaphore;

/// A store with few places for calls. Each read waits for a permit.
struct Paced {
    store: MemoryStore,
    limits: BatchLimits,
    permits: Arc<Semaphore>,
    /// Whether calls of elections with a long lease hang.
    long_hang: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Made>>>,
}

/// A call that was made.
#[derive(Clone, Debug)]
struct Made {
    reads: bool,
    lease: Duration,
    within: Duration,
    seats: Vec<SeatName>,
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(6);
/// In real time, for events that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

impl Paced {
    async fn call(&self, reads: bool, call: &Call, seats: Vec<SeatName>) {
        self.calls.lock().unwrap().push(Made { reads, lease: call.lease, within: call.within, seats });
        if call.lease == LONG && self.long_hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if reads {
            self.permits.acquire().await.unwrap().forget();
        }
    }
}

impl Store for Paced {
    fn promises(&self) -> Promises {
        Promises { reads: self.limits, writes: self.limits, ..Store::promises(&self.store) }
    }

    fn attach(&self, clock: &Clock, _: &News) {
        SeatStore::attach(&self.store, clock);
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.call(true, call, seats.to_vec()).await;
        for (place, seat) in seats.iter().enumerate() {
            to.set(place, SeatStore::read(&self.store, seat).await);
        }
        Ok(())
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        self.call(false, call, writes.iter().map(|write| write.seat.clone()).collect()).await;
        for (place, Write { seat, expect, record }) in writes.iter().enumerate() {
            let answer = match expect {
                Expect::Absent(_) => self.store.swap(seat, None, record).await,
                Expect::Version(version) => self.store.swap(seat, Some(version), record).await,
                Expect::Held(version) => self.store.renew(seat, version, record).await,
                Expect::HolderDead(version) => self.store.free(seat, version, record).await,
            };
            to.set(place, answer);
        }
        Ok(())
    }
}

struct Stage {
    clock: ManualClock,
    elections: Elections,
    permits: Arc<Semaphore>,
    long_hang: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Made>>>,
}

impl Stage {
    fn new(limits: BatchLimits, permits: usize) -> Self {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
        let permits = Arc::new(Semaphore::new(permits));
        let (long_hang, calls) = <(Arc<AtomicBool>, Arc<Mutex<Vec<Made>>>)>::default();
        let (store, permits_of_store) = (memory.store(), permits.clone());
        let (hang, made) = (long_hang.clone(), calls.clone());
        let store = Paced { store, limits, permits: permits_of_store, long_hang: hang, calls: made };
        let elections = Elections::with_clock(store, clock.clone());
        Self { clock, elections, permits, long_hang, calls }
    }

    fn start(&self, name: String, lease: Duration) -> Election {
        self.elections.election(name).lease(lease).start().unwrap()
    }

    fn calls(&self) -> Vec<Made> {
        self.calls.lock().unwrap().clone()
    }
}

#[test]
fn a_request_that_waits_in_the_queue_does_not_time_out_before_it_is_sent() {
    let stage = Stage::new(BatchLimits { seats: 1, calls: 1 }, 0);
    let running: Vec<_> = (0..8).map(|number| stage.start(format!("job-{number}"), LONG)).collect();
    stage.clock.settle();
    // Each call is answered in time, but the last of them leaves after several time-outs.
    let call_timeout = LONG / 15;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for election in &running {
        stage.clock.advance(call_timeout * 3 / 4);
        stage.permits.add_permits(1);
        let elected = runtime.block_on(async { tokio::time::timeout(PATIENCE, election.elected()).await });
        elected.expect("a request timed out before it was sent").unwrap();
    }
    let mut reads = BTreeMap::<SeatName, usize>::new();
    for call in stage.calls().iter().filter(|call| call.reads) {
        assert_eq!(call.within, call_timeout);
        *reads.entry(call.seats[0].clone()).or_default() += 1;
    }
    assert!(reads.values().all(|count| *count == 1), "a request timed out before it was sent: {reads:?}");
}

#[test]
fn elections_with_different_leases_share_no_call_and_do_not_delay_each_other() {
    let stage = Stage::new(BatchLimits { seats: 10, calls: 1 }, Semaphore::MAX_PERMITS);
    let start = |name: &str, lease| (0..3).map(|number| stage.start(format!("{name}-{number}"), lease)).collect();
    let (short, long): (Vec<_>, Vec<_>) = (start("short", SHORT), start("long", LONG));
    stage.clock.advance(SHORT);
    assert!(short.iter().chain(&long).all(Election::is_leader));
    let tokens = || short.iter().map(|election| election.term().map(|term| term.token())).collect::<Vec<_>>();
    let before = tokens();

    // The calls of the long lease use up their place. Their time-out is two thirds of a short lease.
    stage.long_hang.store(true, Ordering::SeqCst);
    for _ in 0..40 {
        stage.clock.advance(LONG / 60);
        assert_eq!(tokens(), before, "an election with a short lease waited for calls of a long one");
    }
    let calls = stage.calls();
    assert!(calls.iter().any(|call| call.seats.len() > 1), "no call is about several seats: {calls:?}");
    for Made { lease, within, seats, .. } in calls {
        assert_eq!(within, lease / 15);
        let own = if lease == SHORT { "short" } else { "long" };
        assert!(seats.iter().all(|seat| seat.as_str().starts_with(own)), "{lease:?}: {seats:?}");
    }
}
