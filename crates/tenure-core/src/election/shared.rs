//! The state that the engine and the handles of an election share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Candidate, Fault, Moment, Rules, Token};
use tokio::sync::Notify;

use crate::driver::ElectionId;
use crate::elections::Engine;
use crate::events::{Entry, Queue};
use crate::handlers::HandlerId;
use crate::log::spans::SpanSlot;
use crate::term::TermState;
use crate::{Clock, Ended, Error, Event, EventKind, Events, Health, Leader, SeatName, StoreError, Term};

/// The state that the engine and the handles of an election share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: ElectionId,
    pub(crate) name: SeatName,
    pub(crate) candidate: Candidate,
    /// The name of the store, such as `redis`.
    pub(crate) store: &'static str,
    pub(crate) clock: Clock,
    pub(crate) lease: Duration,
    /// The moment until which this candidate leads, in nanoseconds of the clock; zero if it does not lead.
    leads_until: AtomicU64,
    state: Mutex<State>,
    /// Notified at every change that a waiter can wait for.
    pub(crate) changed: Notify,
    /// The span of the term that runs.
    pub(crate) term_span: SpanSlot,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) term: Option<Arc<TermState>>,
    pub(crate) leader: Option<Leader>,
    /// The leader before this candidate, until the change is reported.
    pub(crate) led_before: Option<Box<Leader>>,
    pub(crate) last_renewal: Option<SystemTime>,
    pub(crate) ended: Option<Ended>,
    /// The store's last error, until the store works again.
    pub(crate) failing: Option<Arc<StoreError>>,
    /// When the store began to fail.
    pub(crate) failing_since: Moment,
    /// The handlers that panicked or returned an error when they were last called.
    pub(crate) failed_handlers: BTreeMap<HandlerId, Arc<Error>>,
    /// The term whose work is still running although the term is over.
    pub(crate) overran: Option<Token>,
    /// Whether this candidate is too unhealthy to lead.
    pub(crate) unfit: bool,
    listeners: Vec<Weak<Queue>>,
}

impl Shared {
    pub(crate) fn new(id: ElectionId, name: SeatName, candidate: Candidate, engine: &Engine, rules: &Rules) -> Self {
        Self {
            id,
            name,
            candidate,
            store: engine.promises.store,
            clock: engine.clock.clone(),
            lease: rules.timing.lease(),
            leads_until: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Notify::new(),
            term_span: SpanSlot::default(),
        }
    }

    #[inline]
    pub(crate) fn is_leader(&self) -> bool {
        let until = self.leads_until.load(Ordering::Acquire);
        until != 0 && self.clock.now().as_nanos() < until
    }

    pub(crate) fn term(&self) -> Option<Term> {
        let state = self.state();
        self.is_leader().then(|| state.term.clone().map(Term::new)).flatten()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn health(&self) -> Health {
        let state = self.state();
        let unhealthy = |reason: String| Health::Unhealthy { reason };
        if let Some(ended) = &state.ended {
            return unhealthy(format!("the election has ended in this process: {ended}"));
        }
        if let Some(token) = state.overran {
            return unhealthy(format!("work of term {token} is still running although the term is over"));
        }
        if let Some(error) = &state.failing {
            // A single failed call does not make the election unhealthy.
            let long = self.clock.now().since(state.failing_since) >= self.lease / 3;
            match error.fault() {
                Fault::Denied => return unhealthy(format!("the store denies calls of this candidate: {error}")),
                _ if long => return unhealthy(format!("calls to the store fail: {error}")),
                _ => {}
            }
        }
        if !state.failed_handlers.is_empty() {
            let problems: Vec<String> = state.failed_handlers.values().map(ToString::to_string).collect();
            return unhealthy(problems.join("; "));
        }
        let note = if state.unfit { "; this candidate is not healthy enough to lead" } else { "" };
        if self.is_leader() {
            return Health::Healthy { reason: format!("this candidate leads{note}") };
        }
        match &state.leader {
            Some(leader) if leader.candidate != self.candidate => {
                Health::Healthy { reason: format!("{} leads{note}", leader.candidate) }
            }
            _ => Health::Degraded { reason: format!("this candidate sees no leader{note}") },
        }
    }

    pub(crate) async fn stopped(&self) -> Ended {
        loop {
            let changed = self.changed.notified();
            if let Some(ended) = self.state().ended.clone() {
                return ended;
            }
            changed.await;
        }
    }

    /// Sets the moment until which this candidate leads; `None` if it does not lead.
    pub(crate) fn set_leads_until(&self, until: Option<Moment>) {
        self.leads_until.store(until.map_or(0, Moment::as_nanos), Ordering::Release);
    }

    /// Ends an election that the engine never started.
    pub(crate) fn end(&self, why: Ended) {
        self.publish(&self.event(EventKind::Stopped { why: why.clone() }), |state| state.ended = Some(why));
    }

    /// Returns an event of this election with the current time.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        Event { election: self.name.clone(), candidate: self.candidate.clone(), at: SystemTime::now(), kind }
    }

    /// Records that a handler has returned, which clears an earlier failure of the same handler.
    pub(crate) fn handler_returned(&self, handler: HandlerId) {
        self.state().failed_handlers.remove(&handler);
    }

    /// Changes the state and notifies all listeners, under one lock: a new listener either starts with the changed
    /// state or receives the event.
    pub(crate) fn publish(&self, event: &Event, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let mut wakers = Vec::new();
        state.listeners.retain(|listener| match listener.upgrade() {
            None => false,
            Some(queue) => {
                wakers.extend(queue.push(Entry { event: event.clone(), guard: None }));
                true
            }
        });
        drop(state);
        // After the lock is released: a waker is user code.
        wakers.into_iter().for_each(Waker::wake);
        self.changed.notify_waiters();
    }

    pub(super) fn subscribe(&self) -> Events {
        let queue = Arc::new(Queue::default());
        let mut state = self.state();
        let handler_errors = state.failed_handlers.values().cloned();
        let already = [
            self.is_leader()
                .then(|| state.term.clone())
                .flatten()
                .map(|term| EventKind::BecameLeader { term: Term::new(term) }),
            state.leader.clone().map(|leader| EventKind::LeaderChanged { leader: Some(leader), previous: None }),
            state.failing.clone().map(|error| EventKind::Error { error: Arc::new(Error::Store(error)) }),
        ];
        let already = already.into_iter().flatten().chain(handler_errors.map(|error| EventKind::Error { error }));
        let last = state.ended.clone().map(|why| EventKind::Stopped { why });
        for kind in already.chain(last) {
            // The queue is new, so it has no waker.
            let _ = queue.push(Entry { event: self.event(kind), guard: None });
        }
        state.listeners.push(Arc::downgrade(&queue));
        Events(queue)
    }
}

#[cfg(test)]
impl Shared {
    pub(crate) fn for_tests() -> Arc<Self> {
        let candidate = Candidate { id: "me".into(), incarnation: tenure_protocol::Incarnation::from_bits(1) };
        Arc::new(Self {
            id: ElectionId(0),
            name: SeatName::new("jobs").expect("a good name"),
            candidate,
            store: "none",
            clock: Clock::system(),
            lease: Duration::from_secs(15),
            leads_until: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Notify::new(),
            term_span: SpanSlot::default(),
        })
    }
}
