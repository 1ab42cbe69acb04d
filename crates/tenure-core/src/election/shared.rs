//! What the engine and the handles of an election share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Candidate, Fault, Leader, Moment, Rules, Token};
use tokio::sync::Notify;

use crate::driver::ElectionId;
use crate::elections::Engine;
use crate::events::{Entry, Queue};
use crate::term::TermState;
use crate::{Clock, Ended, Event, Events, Health, SeatName, StoreError, Term};

/// What the engine and the handles of an election share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: ElectionId,
    pub(crate) name: SeatName,
    pub(crate) candidate: Candidate,
    /// The name of its store.
    pub(crate) store: &'static str,
    pub(crate) clock: Clock,
    pub(crate) lease: Duration,
    /// Until when it leads, in nanoseconds of the clock; zero: it does not.
    leads_until: AtomicU64,
    state: Mutex<State>,
    /// Told at every change of what a waiter could wait for.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) term: Option<Arc<TermState>>,
    pub(crate) leader: Option<Leader>,
    pub(crate) last_renewal: Option<SystemTime>,
    pub(crate) ended: Option<Ended>,
    /// What the store complains of, until it works again.
    pub(crate) failing: Option<Arc<StoreError>>,
    /// Since when.
    pub(crate) failing_since: Moment,
    /// The term whose work is still running though it is over.
    pub(crate) overran: Option<Token>,
    /// Whether this candidate is well enough to lead.
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
            return unhealthy(format!("the election has ended here: {ended}"));
        }
        if let Some(token) = state.overran {
            return unhealthy(format!("work of term {token} is still running though the term is over"));
        }
        if let Some(error) = &state.failing {
            // One call that failed is nothing to worry about.
            let long = self.clock.now().since(state.failing_since) >= self.lease / 3;
            match error.fault() {
                Fault::Denied => return unhealthy(format!("the store denies us: {error}")),
                _ if long => return unhealthy(format!("the store cannot be reached: {error}")),
                _ => {}
            }
        }
        let note = if state.unfit { "; not well enough to lead itself" } else { "" };
        if self.is_leader() {
            return Health::Healthy { reason: format!("leads{note}") };
        }
        match &state.leader {
            Some(leader) if leader.candidate != self.candidate => {
                Health::Healthy { reason: format!("{} leads{note}", leader.candidate) }
            }
            _ => Health::Degraded { reason: format!("no leader is seen{note}") },
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

    /// Sets until when this candidate leads; `None`: it does not.
    pub(crate) fn set_leads_until(&self, until: Option<Moment>) {
        self.leads_until.store(until.map_or(0, Moment::as_nanos), Ordering::Release);
    }

    /// The election has ended here before it could begin.
    pub(crate) fn end(&self, why: Ended) {
        self.publish(&Event::Stopped { why: why.clone() }, |state| state.ended = Some(why));
    }

    /// Changes what is known and tells all listeners, in one: a new listener has either seen the
    /// change already or is told of it.
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
        // Not under the lock: a waker is somebody else's code.
        wakers.into_iter().for_each(Waker::wake);
        self.changed.notify_waiters();
    }

    pub(super) fn subscribe(&self) -> Events {
        let queue = Arc::new(Queue::default());
        let mut state = self.state();
        let already = [
            self.is_leader()
                .then(|| state.term.clone())
                .flatten()
                .map(|term| Event::BecameLeader { term: Term::new(term) }),
            state.leader.clone().map(|leader| Event::LeaderChanged { leader: Some(leader) }),
            state.failing.clone().map(|error| Event::Error { error }),
            state.ended.clone().map(|why| Event::Stopped { why }),
        ];
        for event in already.into_iter().flatten() {
            // Nobody waits for it yet.
            let _ = queue.push(Entry { event, guard: None });
        }
        state.listeners.push(Arc::downgrade(&queue));
        Events(queue)
    }
}
