//! Spans, which the thread that logs creates, enters and closes.
//!
//! A span calls the subscriber at its beginning, at its end and around each line within it. So the engine's thread
//! never owns a span: it has a [`SpanKey`], and a map of the thread that logs has the span.
//!
//! - Opening, closing and the lines in between go through one queue, so they keep their order.
//! - A span that was opened is always closed: its end has a place in the queue even if the queue is full.
//! - A span has no key if the subscriber is not interested in its level, or if the queue is full. Then it costs nothing
//!   more.
//! - A subscriber can panic in each of these calls. Each panic is caught separately, because a panic while another one
//!   unwinds would abort the process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::{QUEUE, emit};

thread_local! {
    /// The open spans. Only the thread that logs uses them.
    static OPEN: RefCell<HashMap<SpanKey, Span>> = RefCell::default();
}

/// Identifies a span that was opened, or whose opening is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpanKey(NonZeroU64);

/// Opens the span that `make` returns. `make` receives the parent if the parent is open. Returns `None` if no
/// subscriber is interested in this level, or if the queue is full.
///
/// The caller must close the span with [`close`], once.
#[must_use = "a span that was opened must be closed"]
pub(crate) fn open(
    level: Level,
    parent: Option<SpanKey>,
    make: impl FnOnce(Option<tracing::span::Id>) -> Span + Send + 'static,
) -> Option<SpanKey> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if level > LevelFilter::current() {
        return None;
    }
    let key = SpanKey(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed))?);
    let line = move || {
        let parent = parent.and_then(|parent| OPEN.with_borrow(|open| open.get(&parent).and_then(Span::id)));
        let span = make(parent);
        OPEN.with_borrow_mut(|open| open.insert(key, span));
    };
    QUEUE.push_and_run(Box::new(line)).then_some(key)
}

/// Closes a span, with its result in the field `outcome`.
pub(crate) fn close(key: SpanKey, outcome: &'static str) {
    QUEUE.push_reserved(Box::new(move || {
        let Some(span) = OPEN.with_borrow_mut(|open| open.remove(&key)) else { return };
        caught(|| _ = span.record("outcome", outcome));
        drop(span);
    }));
}

/// Emits a line as [`emit`] does, within a span if the span is open.
pub(crate) fn emit_in(span: Option<SpanKey>, level: Level, line: impl FnOnce() + Send + 'static) {
    let Some(key) = span else { return emit(level, line) };
    emit(level, move || {
        OPEN.with_borrow(|open| match open.get(&key) {
            Some(span) if !span.is_disabled() => run_in(span, line),
            _ => line(),
        });
    });
}

/// Runs a line within a span. This does not use a guard: a guard would exit the span, which can panic, while the panic
/// of a line unwinds.
fn run_in(span: &Span, line: impl FnOnce()) {
    span.with_subscriber(|(id, subscriber)| {
        let entered = caught(|| subscriber.enter(id));
        caught(line);
        if entered {
            caught(|| subscriber.exit(id));
        }
    });
}

/// Runs a call, and returns whether it returned. If it panicked, the panic hook has printed the panic.
fn caught(call: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_ok()
}

/// The key of the current span, which all threads can read.
#[derive(Debug, Default)]
pub(crate) struct SpanSlot(AtomicU64);

impl SpanSlot {
    pub(crate) fn get(&self) -> Option<SpanKey> {
        NonZeroU64::new(self.0.load(Ordering::Acquire)).map(SpanKey)
    }

    pub(crate) fn replace(&self, key: Option<SpanKey>) -> Option<SpanKey> {
        let number = key.map_or(0, |key| key.0.get());
        NonZeroU64::new(self.0.swap(number, Ordering::AcqRel)).map(SpanKey)
    }
}
