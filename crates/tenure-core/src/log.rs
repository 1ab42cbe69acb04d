//! Log lines and metric updates, which a separate thread emits.
//!
//! A `tracing` subscriber and a `metrics` recorder are user code. A subscriber that blocks must not delay a renewal,
//! and a subscriber that panics must not end the engine. So the engine's thread only appends to a bounded queue, which
//! never blocks. The thread `tenure-log`, one per process, runs the `tracing` and `metrics` macros and catches their
//! panics.
//!
//! ```text
//!  engine: emit(INFO, || info!(…)) ──────────┐
//!  layers: update(|| counter!(…))  ──────────┼─▶ queue ──▶ tenure-log ──▶ the user's subscriber and recorder
//!  stores, drivers: debug!(…) ─▶ forward.rs ─┘
//! ```
//!
//! - There is one queue, so lines keep their order. When it is full, further lines are dropped and counted, and the
//!   count is logged after the last line that was kept.
//! - Lines and spans go to the process's global subscriber: a subscriber that is the default of one thread alone
//!   does not see them. Lines of a term are emitted within its span (`log/spans.rs`), all others outside of any.
//! - `stopped()` waits until all lines so far are emitted, for at most a second, and not at all if the subscriber has
//!   not returned for that long. Call [`flush`] before a process ends in another way.
//! - A dropped metric update is lost: a gauge keeps its old value until its next change.

mod forward;
pub(crate) mod spans;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use tracing::Level;
use tracing::dispatcher::has_been_set;
use tracing::level_filters::LevelFilter;

pub(crate) use self::forward::{forward, prepare};

/// The largest number of waiting lines: more than ten thousand elections log when they start together.
const MOST: usize = 65_536;

/// How long `stopped()` waits for lines to be emitted.
const PATIENCE: Duration = Duration::from_secs(1);

static QUEUE: Queue = Queue::new(MOST);

/// Runs `line` on the thread that logs. Never blocks, and runs no code of the subscriber on the calling thread.
///
/// For stores with their own threads that calls wait for. On the engine's thread the `tracing` macros already do the
/// same.
///
/// ```
/// use tracing::{Level, warn};
///
/// let path = "seats.db".to_owned();
/// tenure_core::log::emit(Level::WARN, move || warn!(path, "the database was replaced"));
/// ```
pub fn emit(level: Level, line: impl FnOnce() + Send + 'static) {
    // Without a subscriber, `tracing` can be configured to log through the crate `log`.
    if level <= LevelFilter::current() || !has_been_set() {
        QUEUE.push_and_run(Box::new(line));
    }
}

/// Updates a metric on the thread that logs.
#[cfg(feature = "metrics")]
pub(crate) fn update(metric: impl FnOnce() + Send + 'static) {
    QUEUE.push_and_run(Box::new(metric));
}

/// Blocks until all lines and metric updates so far have reached the subscriber and the recorder, for at most
/// `within`, and returns whether they have. For programs that end without waiting for `stopped()`.
pub fn flush(within: Duration) -> bool {
    if QUEUE.is_idle() {
        return true;
    }
    let (done, emitted) = mpsc::channel();
    QUEUE.push_and_run(Box::new(move || _ = done.send(()))) && emitted.recv_timeout(within).is_ok()
}

/// Resolves when all lines so far are emitted, or the subscriber takes too long. Needs the engine's runtime.
pub(crate) async fn flushed() {
    if QUEUE.is_idle() || QUEUE.is_stuck() {
        return;
    }
    let (done, emitted) = tokio::sync::oneshot::channel::<()>();
    // A full queue drops the line at once, which also resolves the receiver.
    QUEUE.push_and_run(Box::new(move || drop(done)));
    let _ = tokio::time::timeout(PATIENCE, emitted).await;
}

type Line = Box<dyn FnOnce() + Send>;

/// The queue of lines that wait for the thread that logs.
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    most: usize,
}

struct State {
    lines: VecDeque<Line>,
    /// The number of dropped lines that was not logged yet. If it is not 0, the line that logs it is in the queue.
    dropped: u64,
    /// When the thread began to emit the current line.
    began: Option<Instant>,
    /// The process in which the thread runs: a fork does not copy the thread.
    runs_in: Option<u32>,
}

impl Queue {
    const fn new(most: usize) -> Self {
        let state = State { lines: VecDeque::new(), dropped: 0, began: None, runs_in: None };
        Self { state: Mutex::new(state), filled: Condvar::new(), most }
    }

    /// Appends a line, and returns whether there was room for it. The lock is held only for that, and never while a
    /// line runs.
    fn push(&'static self, line: Line) -> bool {
        let mut state = self.lock();
        let (has_room, was_empty) = (state.lines.len() < self.most, state.lines.is_empty());
        if has_room {
            state.lines.push_back(line);
        } else {
            if state.dropped == 0 {
                state.lines.push_back(Box::new(|| self.log_dropped()));
            }
            state.dropped += 1;
        }
        drop(state);
        // The thread waits only if the queue is empty. Waking it is most of the cost of a line for the engine.
        if was_empty {
            self.filled.notify_one();
        }
        has_room
    }

    /// Appends the end of a span even if there is no room. Each end belongs to an earlier line, so the queue has at
    /// most twice as many lines.
    fn push_reserved(&'static self, line: Line) {
        let mut state = self.lock();
        let was_empty = state.lines.is_empty();
        state.lines.push_back(line);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Appends a line, and starts the thread if it does not run.
    fn push_and_run(&'static self, line: Line) -> bool {
        let pid = std::process::id();
        let mut state = self.lock();
        if state.runs_in != Some(pid) {
            let thread = std::thread::Builder::new().name("tenure-log".to_owned());
            // If this fails, the next line tries again.
            let started = thread.spawn(|| {
                loop {
                    self.run_next();
                }
            });
            state.runs_in = started.is_ok().then_some(pid);
        }
        drop(state);
        self.push(line)
    }

    /// Waits for a line and runs it.
    fn run_next(&self) {
        let mut state =
            self.filled.wait_while(self.lock(), |state| state.lines.is_empty()).unwrap_or_else(|p| p.into_inner());
        let line = state.lines.pop_front();
        state.began = Some(Instant::now());
        drop(state);
        // The panic hook has printed the panic.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(line) = line {
                line();
            }
            // The process can have installed its subscriber in the meantime.
            prepare();
        }));
        self.lock().began = None;
    }

    fn log_dropped(&self) {
        let dropped = std::mem::take(&mut self.lock().dropped);
        tracing::warn!(dropped, "log lines and metric updates were dropped: the subscriber or recorder is too slow");
    }

    /// Returns whether all lines are emitted.
    fn is_idle(&self) -> bool {
        let state = self.lock();
        state.lines.is_empty() && state.began.is_none()
    }

    /// Returns whether the subscriber has not returned for longer than `PATIENCE`.
    fn is_stuck(&self) -> bool {
        self.lock().began.is_some_and(|began| began.elapsed() >= PATIENCE)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};

    use super::*;

    /// Records the numbers of dropped lines that are logged.
    #[derive(Clone, Default)]
    struct DroppedCounts(Arc<Mutex<Vec<u64>>>);

    impl tracing::Subscriber for DroppedCounts {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == "tenure_core::log"
        }

        fn event(&self, event: &tracing::Event<'_>) {
            struct Dropped<'a>(&'a DroppedCounts);
            impl Visit for Dropped<'_> {
                fn record_u64(&mut self, field: &Field, value: u64) {
                    assert_eq!(field.name(), "dropped");
                    self.0.0.lock().unwrap().push(value);
                }
                fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
            }
            event.record(&mut Dropped(self));
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn lines_beyond_the_limit_are_dropped_and_their_count_is_logged_in_their_place() {
        static SMALL: Queue = Queue::new(3);
        let (recorder, order) = (DroppedCounts::default(), Arc::new(Mutex::new(Vec::new())));
        let number = |number: u32| -> Line {
            let order = order.clone();
            Box::new(move || order.lock().unwrap().push(number))
        };
        let _subscriber = tracing::subscriber::set_default(recorder.clone());
        let kept: Vec<bool> = (0..5).map(|n| SMALL.push(number(n))).collect();
        assert_eq!(kept, [true, true, true, false, false]);
        (0..3).for_each(|_| SMALL.run_next());
        assert_eq!((&*order.lock().unwrap(), recorder.0.lock().unwrap().len()), (&vec![0, 1, 2], 0));
        // Later lines come after the count.
        assert!(SMALL.push(number(5)));
        SMALL.run_next();
        assert_eq!((order.lock().unwrap().len(), &*recorder.0.lock().unwrap()), (3, &vec![2]));
        SMALL.run_next();
        assert_eq!(order.lock().unwrap().last(), Some(&5));
    }

    #[test]
    fn a_line_that_panics_does_not_affect_other_lines() {
        static SMALL: Queue = Queue::new(3);
        let (sent, lines) = mpsc::channel();
        assert!(SMALL.push(Box::new(|| panic!("a subscriber that panics"))));
        assert!(SMALL.push(Box::new(move || sent.send(1).unwrap())));
        SMALL.run_next();
        SMALL.run_next();
        assert_eq!(lines.recv(), Ok(1));
        assert!(SMALL.lock().began.is_none());
    }
}
