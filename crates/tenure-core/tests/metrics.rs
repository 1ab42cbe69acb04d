//! The metrics of elections and of calls to the store.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tenure_core::layers::Measured;
use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Elections, EventKind, Fault, LifeKind, ManualClock, Moment, Promises, Reading, Record, SeatName, SeatStore,
    StoreError, Swap, Version, telemetry,
};

const LEASE: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
struct Seen {
    values: BTreeMap<String, f64>,
    timed: BTreeMap<String, Vec<f64>>,
    described: BTreeMap<String, Option<Unit>>,
    /// The threads on which the recorder was called.
    threads: Vec<String>,
}

static SEEN: Mutex<Seen> = Mutex::new(Seen {
    values: BTreeMap::new(),
    timed: BTreeMap::new(),
    described: BTreeMap::new(),
    threads: Vec::new(),
});

/// The recorder of this process. The names of elections differ between tests, because all threads share it.
struct Kept;

fn lock() -> MutexGuard<'static, Seen> {
    let mut seen = SEEN.lock().unwrap();
    let thread = std::thread::current().name().unwrap_or("?").to_owned();
    if !seen.threads.contains(&thread) {
        seen.threads.push(thread);
    }
    seen
}

fn text(key: &Key) -> String {
    let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

struct Of(String);

impl CounterFn for Of {
    fn increment(&self, value: u64) {
        *lock().values.entry(self.0.clone()).or_default() += value as f64;
    }
    fn absolute(&self, _: u64) {
        unreachable!("counters are only incremented");
    }
}

impl GaugeFn for Of {
    fn increment(&self, _: f64) {
        unreachable!("gauges are only set");
    }
    fn decrement(&self, _: f64) {
        unreachable!("gauges are only set");
    }
    fn set(&self, value: f64) {
        lock().values.insert(self.0.clone(), value);
    }
}

impl HistogramFn for Of {
    fn record(&self, value: f64) {
        lock().timed.entry(self.0.clone()).or_default().push(value);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_eq!(lock().described.insert(name.as_str().to_owned(), unit), None, "{name:?} is described once");
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(name, unit, text);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(name, unit, text);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Of(text(key))))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Of(text(key))))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Of(text(key))))
    }
}

/// Returns a memory on a manual clock, with the recorder installed.
fn stage() -> (ManualClock, Memory) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| metrics::set_global_recorder(Kept).unwrap());
    let clock = ManualClock::new();
    (clock.clone(), Memory::of_kind(LifeKind::Clock, clock))
}

/// Returns the value of a counter or gauge by its full name and labels.
fn value(of: &str) -> Option<f64> {
    assert!(tenure_core::log::flush(Duration::from_secs(60)));
    SEEN.lock().unwrap().values.get(of).copied()
}

fn timed(of: &str) -> Vec<f64> {
    assert!(tenure_core::log::flush(Duration::from_secs(60)));
    SEEN.lock().unwrap().timed.get(of).cloned().unwrap_or_default()
}

fn of(metric: &str, election: &str, candidate: &str) -> String {
    format!("{metric}{{election={election},candidate={candidate},store=memory}}")
}

#[test]
fn calls_terms_and_their_ends_are_counted() {
    let (clock, memory) = stage();
    let elections = Elections::with_clock(Measured::new(memory.store()), clock.clone());
    let election = elections.election("jobs").candidate("a").start().unwrap();
    clock.advance(Duration::from_secs(12));
    assert_eq!(value(&of("tenure_is_leader", "jobs", "a")), Some(1.0));
    memory.usurp("jobs");
    clock.settle();
    assert!(!election.is_leader());

    assert_eq!(value(&of("tenure_is_leader", "jobs", "a")), Some(0.0));
    assert_eq!(value(&of("tenure_terms_total", "jobs", "a")), Some(1.0));
    let ends = "tenure_term_ends_total{election=jobs,candidate=a,store=memory,why=seat_lost}";
    assert_eq!(value(ends), Some(1.0));
    assert_eq!(timed(&of("tenure_term_seconds", "jobs", "a")), [12.0]);
    assert_eq!(value("tenure_store_calls_total{store=memory,call=swap,outcome=done}"), Some(1.0));
    // The first renewal comes at a random time within five seconds, the others every five.
    let renewals = value("tenure_store_calls_total{store=memory,call=renew,outcome=done}").unwrap_or_default();
    assert!(matches!(renewals as u32, 2 | 3), "{renewals}");
    assert_eq!(timed("tenure_store_call_seconds{store=memory,call=renew}").len(), renewals as usize);
    let renewed = timed("tenure_renewal_seconds{election=jobs,candidate=a,store=memory,outcome=done}");
    assert_eq!(renewed, vec![0.0; renewals as usize], "no time passes on this clock");

    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.threads, ["tenure-log"], "no recorder is called on another thread");
    for metric in seen.values.keys().chain(seen.timed.keys()) {
        let name = metric.split_once('{').unwrap().0;
        let unit = seen.described.get(name).copied().flatten();
        assert_eq!(unit, Some(if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count }), "{name}");
    }
}

#[test]
fn a_follower_is_no_leader_from_its_start_and_its_counters_are_there() {
    let (clock, memory) = stage();
    let [first, second] = [(); 2].map(|()| Elections::with_clock(memory.store(), clock.clone()));
    let a = first.election("follow").candidate("a").start().unwrap();
    clock.settle();
    // It is a follower even before the store has answered for the first time.
    memory.hang_next();
    let b = second.election("follow").candidate("b").start().unwrap();
    clock.settle();
    assert!(a.is_leader() && !b.is_leader() && b.leader().is_none());
    assert_eq!(value(&of("tenure_is_leader", "follow", "a")), Some(1.0));
    for metric in [
        "tenure_is_leader",
        "tenure_term_deadline_timestamp_seconds",
        "tenure_store_failing",
        "tenure_terms_total",
        "tenure_lost_bids_total",
        "tenure_store_errors_total",
        "tenure_handler_failures_total",
        "tenure_overruns_total",
    ] {
        assert_eq!(value(&of(metric, "follow", "b")), Some(0.0), "{metric}");
    }
}

/// An observer would have the same labels as a candidate of its process.
#[test]
fn an_observer_beside_a_leader_leaves_its_metrics_alone() {
    let (clock, memory) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let election = elections.election("observed").start().unwrap();
    clock.settle();
    let candidate = election.term().unwrap().candidate().id.clone();
    let observer = elections.observe("observed").unwrap();
    clock.advance(LEASE);
    assert!(observer.leader().is_some());
    drop(observer);
    clock.advance(LEASE);
    assert_eq!(value(&of("tenure_is_leader", "observed", &candidate)), Some(1.0));
}

/// A store on which another candidate is faster, as often as this.
struct Contested(MemoryStore, AtomicU64);

impl SeatStore for Contested {
    fn promises(&self) -> Promises {
        SeatStore::promises(&self.0)
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        SeatStore::read(&self.0, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        if self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Ok(Swap::Lost);
        }
        SeatStore::swap(&self.0, seat, expected, next).await
    }
}

#[test]
fn every_lost_bid_is_counted() {
    let (clock, memory) = stage();
    let elections = Elections::with_clock(Contested(memory.store(), AtomicU64::new(3)), clock.clone());
    let lost = Arc::new(AtomicU64::new(0));
    let heard = {
        let lost = lost.clone();
        move |event: tenure_core::Event| {
            lost.fetch_add(u64::from(matches!(event.kind, EventKind::LostBid)), Ordering::SeqCst);
        }
    };
    let election = elections.election("race").candidate("one").on_event(heard).start().unwrap();
    while !election.is_leader() {
        clock.advance(LEASE);
        clock.settle();
    }
    assert_eq!(lost.load(Ordering::SeqCst), 3);
    assert_eq!(value(&of("tenure_lost_bids_total", "race", "one")), Some(3.0));
}

#[test]
fn errors_of_the_store_and_failures_of_handlers_are_counted_apart() {
    let (clock, memory) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let count = |metric: &str| value(&of(metric, "failing", "a")).unwrap();
    let (told, is_told) = std::sync::mpsc::channel();
    let _election = elections
        .election("failing")
        .candidate("a")
        .on_started_leading(async |_| Err::<(), _>("no disk"))
        .on_error(move |_| _ = told.send(()))
        .start()
        .unwrap();
    is_told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!((count("tenure_handler_failures_total"), count("tenure_store_errors_total")), (1.0, 0.0));

    // A renewal that hangs times out, and another one succeeds before the lease is over.
    memory.hang_next();
    clock.advance(LEASE);
    let unknown = timed("tenure_renewal_seconds{election=failing,candidate=a,store=memory,outcome=unknown}");
    assert!(matches!(unknown[..], [after] if after > 0.0 && after < LEASE.as_secs_f64()), "{unknown:?}");
    assert_eq!((count("tenure_store_failing"), count("tenure_store_errors_total")), (0.0, 1.0));

    for _ in 0..20 {
        memory.fail_next(Fault::Refused);
    }
    clock.advance(Duration::from_secs(6));
    assert_eq!((count("tenure_store_failing"), count("tenure_store_errors_total")), (1.0, 2.0));
    assert_eq!(count("tenure_handler_failures_total"), 1.0);
}

#[test]
fn the_deadline_of_a_term_is_a_time_of_day_that_renewals_move() {
    let (clock, memory) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let before = now();
    let election = elections.election("deadline").candidate("a").start().unwrap();
    let deadline = || value(&of("tenure_term_deadline_timestamp_seconds", "deadline", "a")).unwrap();
    clock.settle();
    let first = deadline();
    let left = election.term().unwrap().remaining().as_secs_f64();
    // Sums of floating-point numbers are not exact.
    assert!((before + left - 0.001..=now() + left + 0.001).contains(&first), "{first}");
    clock.advance(Duration::from_secs(6));
    assert!(deadline() > first, "no renewal has moved it");
    election.stop();
    clock.settle();
    assert_eq!(deadline(), 0.0);
}

/// The moments at which a candidate saw that there was no leader, and at which it led, from its handlers.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<(Option<Moment>, Option<Moment>)>>);

impl Told {
    fn by(&self, clock: &ManualClock) -> impl FnMut(tenure_core::Event) + Send + 'static {
        let (told, clock) = (self.0.clone(), clock.clone());
        move |event| {
            let mut told = told.lock().unwrap();
            match event.kind {
                EventKind::LeaderChanged { leader: None, .. } => told.0 = Some(clock.now()),
                EventKind::BecameLeader { .. } => told.1 = Some(clock.now()),
                _ => {}
            }
        }
    }
}

#[test]
fn hand_overs_are_timed_from_the_end_that_was_seen_to_the_beginning_of_the_next_term() {
    let (clock, memory) = stage();
    let told = Told::default();
    let [first, second] = [(); 2].map(|()| Elections::with_clock(memory.store(), clock.clone()));
    let a = first.election("hand-over").candidate("a").start().unwrap();
    clock.settle();
    let b = second.election("hand-over").candidate("b").on_event(told.by(&clock)).start().unwrap();
    let times = |candidate: &str| timed(&of("tenure_hand_over_seconds", "hand-over", candidate));
    // The candidate is unhealthy at first, so this takes a while.
    b.report_healthy(false, ()).unwrap();
    clock.advance(Duration::from_secs(100));
    a.stop();
    clock.advance(Duration::from_secs(7));
    assert!(b.leader().is_none());
    b.report_healthy(true, ()).unwrap();
    clock.advance(LEASE * 3);
    assert!(b.is_leader());

    assert!(times("a").is_empty(), "a took over from nobody");
    let (seen, began) = *told.0.lock().unwrap();
    let took = began.unwrap().since(seen.unwrap());
    assert!(took >= Duration::from_secs(7), "{took:?}");
    assert_eq!(times("b"), [took.as_secs_f64()]);
    assert_eq!(timed(&of("tenure_term_seconds", "hand-over", "a")), [100.0]);

    // A candidate that leads again after itself has not taken over from another one, either.
    memory.expire("hand-over");
    clock.advance(LEASE * 3);
    assert!(b.is_leader());
    assert_eq!(value(&of("tenure_terms_total", "hand-over", "b")), Some(2.0));
    assert_eq!(times("b").len(), 1);
}

/// The time since the end of the last known leader would include a term that the candidate has not seen.
#[test]
fn a_candidate_that_missed_a_term_times_no_hand_over() {
    let (clock, memory) = stage();
    memory.usurp("missed");
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let election = elections.election("missed").candidate("a").start().unwrap();
    clock.settle();
    let known = election.leader().unwrap().token;
    // Its read of the next term times out, and by then the seat is vacant.
    memory.hang_next();
    let missed = memory.usurp("missed");
    clock.settle();
    memory.expire("missed");
    clock.advance(LEASE * 3);
    let token = election.term().unwrap().token();
    assert!(known < missed && missed < token, "{known} {missed} {token}");
    assert!(timed(&of("tenure_hand_over_seconds", "missed", "a")).is_empty());
}

/// A manual candidate takes the seat when it is asked to, no matter how long there was no leader.
#[test]
fn a_candidate_that_stands_when_asked_to_times_no_hand_over() {
    let (clock, memory) = stage();
    let [first, second] = [(); 2].map(|()| Elections::with_clock(memory.store(), clock.clone()));
    let a = first.election("by hand").candidate("a").start().unwrap();
    clock.settle();
    let b = second.election("by hand").candidate("b").manual().start().unwrap();
    clock.settle();
    a.stop();
    clock.advance(Duration::from_secs(60));
    let asked = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(b.try_acquire());
    assert!(asked.unwrap().is_some());
    assert_eq!(value(&of("tenure_terms_total", "by hand", "b")), Some(1.0));
    assert!(timed(&of("tenure_hand_over_seconds", "by hand", "b")).is_empty());
}

#[test]
fn buckets_rise_and_fit_a_hand_over_of_milliseconds_and_a_term_of_months() {
    let buckets: BTreeMap<_, _> = telemetry::buckets().collect();
    for (metric, bounds) in &buckets {
        assert!(metric.ends_with("_seconds") && bounds.is_sorted_by(|a, b| a < b), "{metric}");
    }
    let below = |metric: &str, value: f64| buckets[metric].iter().filter(|bound| **bound < value).count();
    let parts = |metric: &str, values: &[f64]| {
        let found: Vec<_> = values.iter().map(|value| below(metric, *value)).collect();
        assert!(found.is_sorted_by(|a, b| a < b), "{metric} tells these apart: {values:?}");
        assert!(found.iter().all(|at| *at < buckets[metric].len()), "{metric} has a bucket above all of {values:?}");
    };
    const DAY: f64 = 86_400.0;
    parts("tenure_hand_over_seconds", &[0.0008, 0.003, 0.04, 0.9, 15.0, 120.0]);
    parts("tenure_term_seconds", &[0.5, 40.0, 3000.0, DAY / 2.0, 5.0 * DAY, 30.0 * DAY, 60.0 * DAY]);
    parts("tenure_renewal_seconds", &[0.0004, 0.003, 0.2, 4.0]);
    parts("tenure_store_call_seconds", &[0.0004, 0.003, 0.2, 4.0]);
}
