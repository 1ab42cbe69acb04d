//! Subscribers and recorders that block or panic affect no election, and a working one misses nothing.

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

/// The subscriber of this process. Tests take turns, because all threads share it.
struct Moody {
    mood: Mutex<Mood>,
    changed: Condvar,
    lines: Mutex<Vec<String>>,
    panics: AtomicUsize,
    spans: Spans,
}

/// The number of calls of each kind, whether they panicked or not. A span that could not be opened or entered does not
/// count.
struct Spans {
    opened: AtomicUsize,
    closed: AtomicUsize,
    entered: AtomicUsize,
    exited: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Fine,
    Panics,
    /// Opens, enters and closes spans, but panics over lines within them, and when they are exited.
    PanicsWithinSpans,
    Blocks,
}

static MOODY: Moody = Moody {
    mood: Mutex::new(Mood::Fine),
    changed: Condvar::new(),
    lines: Mutex::new(Vec::new()),
    panics: AtomicUsize::new(0),
    spans: Spans {
        opened: AtomicUsize::new(0),
        closed: AtomicUsize::new(0),
        entered: AtomicUsize::new(0),
        exited: AtomicUsize::new(0),
    },
};

impl Moody {
    /// Blocks or panics, as the current mood says. No part of the subscriber must run on the engine's thread.
    fn misbehave(&self) {
        self.suffer_if(&[Mood::Panics]);
    }

    fn suffer_within_spans(&self) {
        self.suffer_if(&[Mood::Panics, Mood::PanicsWithinSpans]);
    }

    fn suffer_if(&self, panics_in: &[Mood]) {
        let mood = self.changed.wait_while(self.mood.lock().unwrap(), |mood| *mood == Mood::Blocks).unwrap();
        if panics_in.contains(&mood) {
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
        MOODY.misbehave();
        metadata.target().starts_with("tenure") || metadata.target() == "driver"
    }

    fn event(&self, event: &Event<'_>) {
        MOODY.suffer_within_spans();
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
        assert_eq!(std::thread::current().name(), Some("tenure-log"));
        MOODY.misbehave();
        span::Id::from_u64(1 + MOODY.spans.opened.fetch_add(1, Ordering::SeqCst) as u64)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {
        MOODY.suffer_within_spans();
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {
        MOODY.misbehave();
        MOODY.spans.entered.fetch_add(1, Ordering::SeqCst);
    }
    fn exit(&self, _: &span::Id) {
        MOODY.spans.exited.fetch_add(1, Ordering::SeqCst);
        MOODY.suffer_within_spans();
    }
    fn try_close(&self, _: span::Id) -> bool {
        assert_eq!(std::thread::current().name(), Some("tenure-log"));
        MOODY.spans.closed.fetch_add(1, Ordering::SeqCst);
        MOODY.misbehave();
        true
    }
}

#[cfg(feature = "metrics")]
impl metrics::Recorder for Installed {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {
        MOODY.misbehave();
    }
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {
        MOODY.misbehave();
    }
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {
        MOODY.misbehave();
    }
    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        MOODY.misbehave();
        metrics::Counter::noop()
    }
    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        MOODY.misbehave();
        metrics::Gauge::noop()
    }
    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        MOODY.misbehave();
        metrics::Histogram::noop()
    }
}

/// Formats each value with its type.
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

/// Runs one test at a time, with a time-out, and unblocks the subscriber afterwards.
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
    // Lines of the previous test arrive now, if its subscriber blocked.
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

/// Checks that elections keep their terms, take over and stop while the subscriber is in this mood.
fn elections_go_on(mood: Mood) {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let store = Traced::new(Noisy(memory.store()));
    #[cfg(feature = "metrics")]
    let store = tenure_core::layers::Measured::new(store);
    let elections = Elections::with_clock(store, clock.clone());
    let a = elections.election("a").start().unwrap();
    // The first use of a callsite of a store calls the subscriber on the engine's thread.
    clock.settle();
    assert!(tenure_core::log::flush(LONG));
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
fn a_subscriber_that_blocks_forever_does_not_affect_elections() {
    in_turn(|| elections_go_on(Mood::Blocks));
}

#[test]
fn a_subscriber_that_panics_does_not_affect_elections() {
    in_turn(|| {
        elections_go_on(Mood::Panics);
        assert!(MOODY.panics.load(Ordering::SeqCst) > 0, "it was called");
        MOODY.set(Mood::Fine);
        elections_go_on(Mood::Fine);
        // On a busy machine, the backtraces of the panics take longer than `stopped()` waits for the log.
        assert!(tenure_core::log::flush(LONG));
        assert!(MOODY.take().iter().any(|line| line.contains("has ended in this process")), "and is called again");
    });
}

/// Returns how often spans were opened, closed, entered and exited, after all lines so far are emitted.
fn spans() -> [usize; 4] {
    // A full queue does not accept a request to flush.
    while !tenure_core::log::flush(LONG) {
        std::thread::yield_now();
    }
    let Spans { opened, closed, entered, exited } = &MOODY.spans;
    [opened, closed, entered, exited].map(|count| count.load(Ordering::SeqCst))
}

/// After a panic over a line, exiting its span must not panic while the first panic unwinds: that would abort the
/// process.
#[test]
fn spans_that_were_opened_and_entered_are_exited_and_closed_whatever_panics() {
    for mood in [Mood::Fine, Mood::PanicsWithinSpans, Mood::Panics] {
        in_turn(move || {
            let before = spans();
            elections_go_on(mood);
            MOODY.set(Mood::Fine);
            let after = spans();
            let [opened, closed, entered, exited] = std::array::from_fn(|i| after[i] - before[i]);
            assert_eq!((opened, entered), (closed, exited));
            // At least three terms, and a bid for each. Where no span can be opened, that of the first term still
            // exists.
            assert!(opened >= if mood == Mood::Panics { 1 } else { 6 } && entered > 0, "{opened} {entered}");
        });
    }
}

#[test]
fn a_term_that_ends_while_the_subscriber_blocks_and_lines_are_dropped_has_its_span_closed() {
    in_turn(|| {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let election = elections.election("jobs").start().unwrap();
        clock.settle();
        let [opened, closed, ..] = spans();
        assert_eq!(opened, closed + 1, "the term's own is open");
        MOODY.set(Mood::Blocks);
        // More lines than the queue holds.
        for _ in 0..70_000 {
            tenure_core::log::emit(tracing::Level::ERROR, || tracing::error!("one of very many lines"));
        }
        election.stop();
        block_on(election.stopped());
        MOODY.set(Mood::Fine);
        let [opened, closed, entered, exited] = spans();
        assert_eq!((opened, entered), (closed, exited));
    });
}

/// No line is lost or changes its place, and each one has its level, target and fields.
#[test]
fn lines_of_a_store_and_its_drivers_arrive_in_order_from_another_thread() {
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
                "INFO tenure_core::driver::publish: message=this candidate leads election=jobs candidate=web-1 token=1u64",
                "INFO tenure_core::driver::publish: message=the election has a new leader election=jobs leader=web-1 token=1u64",
                "INFO tenure_core::driver::publish: message=this candidate stops leading election=jobs candidate=web-1 token=1u64 why=\"stopped\"str",
                "INFO tenure_core::driver::publish: message=the term is over election=jobs candidate=web-1 token=1u64 why=\"stopped\"str",
                "INFO tenure_core::driver::publish: message=the election has no leader election=jobs",
                "INFO tenure_core::driver::publish: message=the election has ended in this process election=jobs candidate=web-1 why=it was stopped",
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

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        self.0.free(seat, held, vacant).await
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

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.0.list_seats().await
    }

    fn lifeline(&self, _: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        Ok(None)
    }
}
