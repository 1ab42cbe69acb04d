//! Handlers: user code that is called when an event happens.
//!
//! ```text
//!  engine ─▶ queue of one election ─▶ its handlers, one event after the other ────┐
//!                                     on_started_leading, on a separate thread ───┴▶ threads.rs
//! ```
//!
//! Handlers never run on the engine's thread, and handlers of different elections never wait for each other. Within an
//! election they run one event at a time and in order: a slow handler delays the others, and the end of a term that
//! waits for its `on_stopped_leading`, but no renewal. `on_started_leading` is work: it runs beside the other
//! handlers, holds its term like the work of `run_while_leader`, and is dropped when the term is over. The panic of a
//! handler is caught and reported.

mod threads;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tenure_protocol::{EndReason, Token};
use tokio::runtime;
use tracing::{Level, error};

pub(crate) use self::threads::HandlerThreads;
use crate::clock::Busy;
use crate::election::Shared;
use crate::events::{Entry, Queue};
use crate::log::spans::emit_in;
use crate::run::{WorkOutcome, supervise};
use crate::term::WorkGuard;
use crate::{Error, Event, EventKind, Leader, Term, telemetry};

type Handler<A> = Box<dyn FnMut(A) + Send>;

/// The method of the builder that registered a handler, and its place among the handlers of that method.
pub(crate) type HandlerId = (&'static str, usize);

pub(crate) const ON_STARTED_LEADING: &str = "on_started_leading";

/// The handlers of one election.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) on_event: Vec<Handler<Event>>,
    pub(crate) on_started_leading: Vec<Arc<Mutex<dyn Lead>>>,
    pub(crate) on_stopped_leading: Vec<Box<dyn FnMut(Token, EndReason) + Send>>,
    pub(crate) on_leadership_changed: Vec<Handler<bool>>,
    pub(crate) on_new_leader: Vec<Handler<Option<Leader>>>,
    pub(crate) on_error: Vec<Handler<Arc<Error>>>,
}

impl Handlers {
    pub(crate) fn is_empty(&self) -> bool {
        self.on_event.is_empty()
            && self.on_started_leading.is_empty()
            && self.on_stopped_leading.is_empty()
            && self.on_leadership_changed.is_empty()
            && self.on_new_leader.is_empty()
            && self.on_error.is_empty()
    }
}

/// A handler of `on_started_leading`: an asynchronous closure whose future is polled on a separate thread.
pub(crate) trait Lead: Send {
    /// Runs the handler, and returns the text of its error, if any.
    fn lead(&mut self, term: Term) -> Pin<Box<dyn Future<Output = Option<String>> + '_>>;
}

impl<R: WorkOutcome, F: AsyncFnMut(Term) -> R + Send> Lead for F {
    fn lead(&mut self, term: Term) -> Pin<Box<dyn Future<Output = Option<String>> + '_>> {
        Box::pin(async move { self(term).await.failure() })
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The engine's end of the queue to the handlers of an election.
pub(crate) struct HandlerLine {
    /// Taken only by `drop`.
    queue: Option<Arc<HandlerQueue>>,
    /// Whether `on_started_leading` holds each term.
    pub(crate) has_on_started: bool,
    /// Whether the end of each term waits for `on_stopped_leading`.
    pub(crate) has_on_stopped: bool,
}

/// The events that wait for the handlers of one election.
struct HandlerQueue {
    shared: Arc<Shared>,
    events: Queue,
    /// Whether a thread takes events from the queue, or is about to.
    listed: AtomicBool,
    handlers: Mutex<Handlers>,
    threads: HandlerThreads,
    /// The runtime in which the election was started, so that handlers can spawn tasks on it.
    runtime: Option<runtime::Handle>,
}

impl HandlerLine {
    pub(crate) fn new(shared: Arc<Shared>, handlers: Handlers, threads: HandlerThreads) -> Self {
        let has_on_started = !handlers.on_started_leading.is_empty();
        let has_on_stopped = !handlers.on_stopped_leading.is_empty();
        let queue = HandlerQueue {
            shared,
            events: Queue::default(),
            listed: AtomicBool::new(false),
            handlers: Mutex::new(handlers),
            threads,
            runtime: runtime::Handle::try_current().ok(),
        };
        Self { queue: Some(Arc::new(queue)), has_on_started, has_on_stopped }
    }

    /// Adds an event. Never blocks.
    pub(crate) fn push(&self, entry: Entry) {
        if let Some(queue) = &self.queue {
            queue.push(entry);
        }
    }
}

impl Drop for HandlerLine {
    /// Drops the handlers on their threads, because dropping them runs user code.
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let (threads, busy) = (queue.threads.clone(), queue.shared.clock.busy());
            threads.run(Box::new(move || {
                // The panic hook has printed a panic in the drop of a handler.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(queue)));
                drop(busy);
            }));
        }
    }
}

impl HandlerQueue {
    fn push(self: &Arc<Self>, entry: Entry) {
        // The queue has no waker: a thread of the pool reads it.
        let _ = self.events.push(entry);
        if !self.listed.swap(true, Ordering::AcqRel) {
            let (queue, busy) = (self.clone(), self.shared.clock.busy());
            self.threads.run(Box::new(move || queue.dispatch(busy)));
        }
    }

    /// Calls the handlers for all events in the queue. Only one thread at a time does so.
    fn dispatch(self: Arc<Self>, busy: Option<Busy>) {
        let entered = self.runtime.as_ref().map(runtime::Handle::enter);
        loop {
            while let Some(entry) = self.events.pop() {
                self.handle(entry);
            }
            self.listed.store(false, Ordering::Release);
            // An event that was added just before this store has not started a thread.
            if self.events.is_empty() || self.listed.swap(true, Ordering::AcqRel) {
                break;
            }
        }
        drop(entered);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self)));
        // A manual clock waits until this guard is dropped.
        drop(busy);
    }

    fn handle(self: &Arc<Self>, Entry { event, guard }: Entry) {
        let mut handlers = self.handlers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Handlers {
            on_event,
            on_started_leading,
            on_stopped_leading,
            on_leadership_changed,
            on_new_leader,
            on_error,
        } = &mut *handlers;
        for (place, handler) in on_event.iter_mut().enumerate() {
            self.guarded(("on_event", place), || handler(event.clone()));
        }
        match event.kind {
            EventKind::BecameLeader { term } => {
                for (place, handler) in on_leadership_changed.iter_mut().enumerate() {
                    self.guarded(("on_leadership_changed", place), || handler(true));
                }
                for (place, handler) in on_started_leading.iter().enumerate() {
                    self.lead(place, handler.clone(), term.clone());
                }
            }
            EventKind::Ending { token, why } => {
                for (place, handler) in on_leadership_changed.iter_mut().enumerate() {
                    self.guarded(("on_leadership_changed", place), || handler(false));
                }
                for (place, handler) in on_stopped_leading.iter_mut().enumerate() {
                    self.guarded(("on_stopped_leading", place), || handler(token, why));
                }
            }
            EventKind::LeaderChanged { leader, .. } => {
                for (place, handler) in on_new_leader.iter_mut().enumerate() {
                    self.guarded(("on_new_leader", place), || handler(leader.clone()));
                }
            }
            EventKind::Error { error } => {
                for (place, handler) in on_error.iter_mut().enumerate() {
                    self.guarded(("on_error", place), || handler(error.clone()));
                }
            }
            _ => {}
        }
        drop(guard);
    }

    /// Runs a handler of `on_started_leading` on a separate thread.
    fn lead(self: &Arc<Self>, place: usize, handler: Arc<Mutex<dyn Lead>>, term: Term) {
        // The guard is taken here, so that the seat is not released before the handler has started.
        let (queue, guard, busy) = (self.clone(), term.hold_open(), self.shared.clock.busy());
        self.threads.run(Box::new(move || {
            // The next term begins only after the work of this one has returned, so the lock is free.
            let mut handler = handler.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // A manual clock waits until the handler waits for something, or until all of this is done.
            let mut busy = busy;
            queue.guarded_outcome((ON_STARTED_LEADING, place), Some(term.token()), || {
                let work = until_pending(handler.lead(term.clone()), &mut busy);
                run_to_end(queue.runtime.as_ref(), &term, guard, work)
            });
            drop(handler);
            drop(busy);
        }));
    }

    fn guarded(self: &Arc<Self>, handler: HandlerId, call: impl FnOnce()) {
        self.guarded_outcome(handler, None, || {
            call();
            None
        });
    }

    /// Calls a handler, and reports a panic or an error that it returned. In `health()` the failure of a handler that
    /// leads shows until its `term` ends.
    fn guarded_outcome(self: &Arc<Self>, id: HandlerId, term: Option<Token>, call: impl FnOnce() -> Option<String>) {
        let (handler, _) = id;
        let problem = match catch_unwind(AssertUnwindSafe(call)) {
            Ok(None) => return self.shared.handler_returned(id),
            Ok(Some(error)) => format!("failed: {error}"),
            Err(panic) => format!("panicked: {}", panic_message(&*panic)),
        };
        let (shared, logged) = (self.shared.clone(), problem.clone());
        emit_in(self.shared.term_span.get(), Level::ERROR, move || {
            error!(election = %shared.name, handler, problem = logged, "a handler failed; the election goes on");
        });
        let error = Arc::new(Error::Handler { handler, problem });
        let event = self.shared.event(EventKind::Error { error: error.clone() });
        telemetry::count(&self.shared, &event.kind);
        self.shared.publish(&event, |state| {
            // The engine may have ended the term since the handler has returned.
            let runs = state.term.as_ref().map(|term| term.token());
            if term.is_none() || term == runs {
                state.failed_handlers.insert(id, error);
            }
        });
        // A handler that fails at every error must not be called in an endless loop.
        if !matches!(handler, "on_event" | "on_error") {
            self.push(Entry { event, guard: None });
        }
    }
}

/// Drops the guard when the work is pending for the first time.
async fn until_pending<T>(work: impl Future<Output = T>, busy: &mut Option<Busy>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            *busy = None;
        }
        polled
    })
    .await
}

/// Runs the work on this thread until it returns or its term is over.
fn run_to_end(
    runtime: Option<&runtime::Handle>,
    term: &Term,
    guard: WorkGuard,
    work: impl Future<Output = Option<String>>,
) -> Option<String> {
    let work = supervise(term, guard, work);
    let ended = match runtime {
        Some(runtime) => runtime.block_on(work),
        None => match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(work),
            Err(error) => return Some(format!("no runtime could be started for it: {error}")),
        },
    };
    // Work that was dropped at the end of its term has not failed.
    ended.ok().flatten()
}
