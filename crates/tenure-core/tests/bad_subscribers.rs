//! Subscribers and recorders that block or panic hurt no election, and a healthy one misses nothing.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::layers::Traced;
use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Clock, DynNotes, Elections, LifeKind, ManualClock, Promises, Reading, Record, SeatName, SeatStore, Seen,
    StoreError, Swap, Version,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

const LEASE: Duration = Duration::from_secs(15);
const LONG: Duration = Duration::from_secs(60);

/// The subscriber of this process. Tests take turns, as there is one for all threads.
struct Moody {
    mood: Mutex<Mood>,
    changed: Condvar,
    lines: Mutex<Vec<String>>,
    panics: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Fine,
    Panics,
    Blocks,
}

static MOODY: Moody = Moody {
    mood: Mutex::new(Mood::Fine),
    changed: Condvar::new(),
    lines: Mutex::new(Vec::new()),
    panics: AtomicUsize::new(0),
};

impl Moody {
    /// Whatever is asked of it: no part of it may run on the engine's thread.
    fn suffer(&self) {
        let mood = self.changed.wait_while(self.mood.lock().unwrap(), |mood| *mood == Mood::Blocks).unwrap();
        if *mood == Mood::Panics {
            drop(mood);
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("a subscriber that panics");
        }
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
        self.changed.notify_all();
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Installed;

impl Subscriber for Installed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        MOODY.suffer();
        metadata.target().starts_with("tenure") || metadata.target() == "driver"
    }

    fn event(&self, event: &Event<'_>) {
        MOODY.suffer();
        let mut line = format!(
            "{} {} {}:",
            std::thread::current().name().unwrap_or("?"),
            event.metadata().level(),
            event.metadata().target()
        );
        event.record(&mut Text(&mut line));
        MOODY.lines.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[cfg(feature = "metrics")]
impl metrics::Recorder for Installed {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        MOODY.suffer();
        metrics::Counter::noop()
    }
    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        MOODY.suffer();
        metrics::Gauge::noop()
    }
    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        MOODY.suffer();
        metrics::Histogram::noop()
    }
}

/// Tells the type of each value.
struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        write!(self.0, " {}={value}u64", field.name()).unwrap();
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        write!(self.0, " {}={value}bool", field.name()).unwrap();
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value:?}str", field.name()).unwrap();
    }
}

/// Runs one test at a time. Fails it rather than hanging for ever, and lets the subscriber go afterwards.
fn in_turn(test: impl FnOnce() + Send + 'static) {
    static TURN: LazyLock<Mutex<()>> = LazyLock::new(|| {
        tracing::subscriber::set_global_default(Installed).unwrap();
        #[cfg(feature = "metrics")]
        metrics::set_global_recorder(Installed).unwrap();
        Mutex::new(())
    });
    struct Fine<'a>(#[expect(dead_code, reason = "only to be dropped")] MutexGuard<'a, ()>);
    impl Drop for Fine<'_> {
        fn drop(&mut self) {
            MOODY.set(Mood::Fine);
        }
    }
    let _fine = Fine(TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    // Lines of the test before arrive now, if its subscriber blocked.
    assert!(tenure_core::log::flush(LONG));
    MOODY.take();
    let (done, is_done) = mpsc::channel();
    let running = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match is_done.recv_timeout(LONG) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => running.join().unwrap(),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the subscriber holds up the elections"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Elections go on, keep their terms, take over and stop, while the subscriber is in this mood.
fn elections_go_on(mood: Mood) {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let store = Traced::new(Noisy(memory.store()));
    #[cfg(feature = "metrics")]
    let store = tenure_core::layers::Measured::new(store);
    let elections = Elections::with_clock(store, clock.clone());
    let a = elections.election("a").start().unwrap();
    // A store's callsite asks the subscriber on the engine's thread when it is reached for the first time.
    clock.settle();
    MOODY.set(mood);
    let b = elections.election("b").start().unwrap();
    clock.settle();
    let tokens = [&a, &b].map(|election| election.term().unwrap().token());
    for _ in 0..20 {
        clock.advance(LEASE / 3);
        assert_eq!([&a, &b].map(|election| election.term().unwrap().token()), tokens);
    }
    memory.usurp("a");
    clock.settle();
    assert!(!a.is_leader() && b.is_leader());
    clock.advance(LEASE * 2);
    assert!(a.is_leader() && b.is_leader());
    a.stop();
    block_on(a.stopped());
    assert!(b.is_leader());
    elections.stop();
    block_on(elections.stopped());
    assert!(!b.is_leader());
}

#[test]
fn a_subscriber_that_blocks_for_ever_costs_no_election_anything() {
    in_turn(|| elections_go_on(Mood::Blocks));
}

#[test]
fn a_subscriber_that_panics_costs_no_election_anything() {
    in_turn(|| {
        elections_go_on(Mood::Panics);
        assert!(MOODY.panics.load(Ordering::SeqCst) > 0, "it was called");
        MOODY.set(Mood::Fine);
        elections_go_on(Mood::Fine);
        // On a busy machine the backtraces of the panics take longer than elections wait for.
        assert!(tenure_core::log::flush(LONG));
        assert!(MOODY.take().iter().any(|line| line.contains("has ended here")), "and is called again");
    });
}

/// No line may be lost or change its place, and each one comes with its level, target and fields.
#[test]
fn what_a_store_and_its_drivers_log_arrives_in_order_from_another_thread() {
    in_turn(|| {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
        let elections = Elections::with_clock(Noisy(memory.store()), clock.clone());
        let election = elections.election("jobs").candidate("web-1").start().unwrap();
        clock.settle();
        election.stop();
        block_on(election.stopped());
        let lines = MOODY.take();
        assert!(lines.iter().all(|line| line.starts_with("tenure-log ")), "{lines:#?}");
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("tenure-log ")).collect();
        assert_eq!(
            lines,
            [
                "DEBUG driver: message=reading seat=jobs name=\"jobs\"str length=4u64 short=true",
                "INFO tenure_core::driver::publish: message=leads election=jobs candidate=web-1 token=1",
                "INFO tenure_core::driver::publish: message=has a leader election=jobs leader=web-1 token=1",
                "INFO tenure_core::driver::publish: message=stops leading election=jobs candidate=web-1 token=1 why=\"stopped\"str",
                "INFO tenure_core::driver::publish: message=the term is over election=jobs candidate=web-1 token=1 why=\"stopped\"str",
                "INFO tenure_core::driver::publish: message=has no leader election=jobs",
                "INFO tenure_core::driver::publish: message=has ended here election=jobs candidate=web-1 why=it was stopped",
            ]
            .map(|line| line.replace("short=true", "short=truebool"))
        );
    });
}

/// A store that logs, as drivers do.
struct Noisy(MemoryStore);

#[deny(clippy::missing_trait_methods)]
impl SeatStore for Noisy {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    fn attach(&self, clock: &Clock) {
        self.0.attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let _span = tracing::debug_span!(target: "driver", "spans are switched off").entered();
        let (name, length) = (seat.as_str(), seat.as_str().len() as u64);
        tracing::debug!(target: "driver", %seat, name, length, short = length < 10, "reading");
        self.0.read(seat).now_or_never().expect("a memory answers at once")
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.0.swap(seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.0.renew(seat, held, record).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> tenure_core::Change {
        self.0.changed(seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.0.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.0.forget(seat).await
    }

    fn lifeline(&self, _: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        Ok(None)
    }
}
