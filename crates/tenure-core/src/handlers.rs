//! Handlers: user code that is called when something happens.
//!
//! They run in order on one thread of their own per `Elections`, never on the engine's: a slow one
//! holds up other handlers, and the end of a term that waits for its `on_stopped_leading`, but no
//! renewal; a panicking one is caught and logged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use tenure_protocol::{EndReason, Leader, Token};
use tracing::{Level, error};

use crate::clock::Busy;
use crate::events::{Entry, Queue};
use crate::{Clock, Error, Event, SeatName, Term, log};

type Handler<A> = Box<dyn FnMut(A) + Send>;

/// The handlers of one election.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) on_event: Vec<Handler<Event>>,
    pub(crate) on_started_leading: Vec<Handler<Term>>,
    pub(crate) on_stopped_leading: Vec<Box<dyn FnMut(Token, EndReason) + Send>>,
    pub(crate) on_new_leader: Vec<Handler<Option<Leader>>>,
}

impl Handlers {
    pub(crate) fn is_empty(&self) -> bool {
        self.on_event.is_empty()
            && self.on_started_leading.is_empty()
            && self.on_stopped_leading.is_empty()
            && self.on_new_leader.is_empty()
    }

    fn handle(&mut self, election: &SeatName, event: Event) {
        for handler in &mut self.on_event {
            guarded(election, || handler(event.clone()));
        }
        match event {
            Event::BecameLeader { term } => {
                for handler in &mut self.on_started_leading {
                    guarded(election, || handler(term.clone()));
                }
            }
            Event::Ending { token, why } => {
                for handler in &mut self.on_stopped_leading {
                    guarded(election, || handler(token, why));
                }
            }
            Event::LeaderChanged { leader } => {
                for handler in &mut self.on_new_leader {
                    guarded(election, || handler(leader.clone()));
                }
            }
            _ => {}
        }
    }
}

fn guarded(election: &SeatName, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        let (election, message) = (election.clone(), panic_message(&*panic).to_owned());
        log::emit(Level::ERROR, move || error!(%election, message, "a handler panicked; the election goes on"));
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The line from an election to its handlers.
pub(crate) struct HandlerLine {
    /// Taken only by `drop`.
    queue: Option<Arc<HandlerQueue>>,
    thread: mpsc::Sender<Listed>,
    clock: Clock,
    /// Whether the end of a term waits for a handler.
    pub(crate) has_on_stopped: bool,
}

/// A queue with something in it. A clock moved by hand waits until that is done.
type Listed = (Arc<HandlerQueue>, Option<Busy>);

/// What waits for the handlers of one election.
struct HandlerQueue {
    election: SeatName,
    events: Queue,
    /// On the thread's list already.
    listed: AtomicBool,
    handlers: Mutex<Handlers>,
}

impl HandlerLine {
    /// Adds an event. Never blocks.
    pub(crate) fn push(&self, entry: Entry) {
        let Some(queue) = &self.queue else { return };
        // The thread does not wait on the queue, but on its list.
        let _ = queue.events.push(entry);
        if !queue.listed.swap(true, Ordering::AcqRel) {
            // Fails only if the thread is gone, and nobody listens.
            let _ = self.thread.send((queue.clone(), self.clock.busy()));
        }
    }
}

impl Drop for HandlerLine {
    /// Leaves the handlers to their thread, after their last event: dropping them runs user code, too.
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            let _ = self.thread.send((queue, self.clock.busy()));
        }
    }
}

/// The thread that handlers run on. It ends when the engine and all lines to it are gone.
#[derive(Clone)]
pub(crate) struct HandlerThread(mpsc::Sender<Listed>);

impl HandlerThread {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, Error> {
        let (thread, queues) = mpsc::channel::<Listed>();
        std::thread::Builder::new()
            .name("tenure-handlers".to_owned())
            .spawn(move || {
                for (queue, busy) in queues {
                    // Cleared first: what comes in from here on lists the queue again.
                    queue.listed.store(false, Ordering::Release);
                    while let Some(Entry { event, guard }) = queue.events.pop() {
                        queue
                            .handlers
                            .lock()
                            .unwrap_or_else(|poisoned| poisoned.into_inner())
                            .handle(&queue.election, event);
                        drop(guard);
                    }
                    let election = queue.election.clone();
                    guarded(&election, || drop(queue));
                    drop(busy);
                }
            })
            .map_err(|error| Error::Engine(error.to_string()))?;
        Ok(Self(thread))
    }

    pub(crate) fn line(&self, election: SeatName, handlers: Handlers, clock: Clock) -> HandlerLine {
        let has_on_stopped = !handlers.on_stopped_leading.is_empty();
        let queue = HandlerQueue {
            election,
            events: Queue::default(),
            listed: AtomicBool::new(false),
            handlers: Mutex::new(handlers),
        };
        HandlerLine { queue: Some(Arc::new(queue)), thread: self.0.clone(), clock, has_on_stopped }
    }
}
