//! One election, as its user holds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Candidate, Fault, Leader, Moment, Rules, Score, Token};
use tokio::sync::{Notify, oneshot};

use crate::driver::{Command, ElectionId};
use crate::elections::Engine;
use crate::events::{Entry, Queue};
use crate::term::TermState;
use crate::{CandidateStatus, Clock, Ended, Error, Event, Events, Health, Metadata, SeatName, StoreError, Term};

/// A candidate's part in one election. Cheap to clone; clones are the same candidate.
///
/// Dropping it changes nothing; the election runs until [`stop`](Self::stop), or until this and
/// every other handle of its [`Elections`](crate::Elections) are gone: then all that runs there is
/// stopped in good order, in the background.
///
/// None of its futures needs a particular runtime, and all are safe to drop.
#[derive(Clone, Debug)]
pub struct Election {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
}

impl Election {
    pub(crate) fn new(shared: Arc<Shared>, engine: Arc<Engine>) -> Self {
        Self { shared, engine }
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.shared.name.as_str()
    }

    /// This candidate.
    pub fn candidate(&self) -> &Candidate {
        &self.shared.candidate
    }

    /// Whether this candidate leads now. Reads the clock at the call: false after the hold even if
    /// the process was paused, the runtime is stuck or the machine slept; and false from the moment
    /// that the end of the term is told.
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.shared.is_leader()
    }

    /// The term of this candidate, if it leads now.
    pub fn term(&self) -> Option<Term> {
        self.shared.term()
    }

    /// Who leads, as far as can be seen from here.
    pub fn leader(&self) -> Option<Leader> {
        self.shared.state().leader.clone()
    }

    /// When this candidate's lease was last renewed, by the wall clock, while it leads.
    pub fn last_renewal(&self) -> Option<SystemTime> {
        self.shared.state().last_renewal
    }

    /// What happens, from now on.
    pub fn events(&self) -> Events {
        self.shared.subscribe()
    }

    /// Waits until this candidate leads, and returns its term: at once, if it leads already.
    ///
    /// # Errors
    /// Why there will be no term: the election was stopped here, or has given up.
    pub async fn elected(&self) -> Result<Term, Ended> {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(term) = self.term() {
                return Ok(term);
            }
            if let Some(ended) = self.shared.state().ended.clone() {
                return Err(ended);
            }
            changed.await;
        }
    }

    /// Bids for the seat once, now. Returns the term if this candidate leads, `None` if another
    /// does, or if this one may not stand now (it has just stepped down, or its work overran).
    ///
    /// On a `.manual()` election this is the only way to lead, and the term is given up when the
    /// last clone of what this returns is dropped.
    ///
    /// If the future is dropped, the bid goes on; should it win, then a manual election gives the
    /// seat up again.
    ///
    /// # Errors
    /// The store's error, if it failed. Should the bid have been won all the same, then a manual
    /// election gives the seat up as soon as it finds out.
    pub async fn try_acquire(&self) -> Result<Option<Term>, Error> {
        self.ask(|election, reply| Command::Bid { election, reply }).await
    }

    /// Asks whoever leads to step down, by way of the store's board, and returns whom it asked;
    /// `None` if nobody leads.
    ///
    /// # Errors
    /// If the store has no board, or fails.
    pub async fn request_step_down(&self) -> Result<Option<Leader>, Error> {
        self.ask(|election, reply| Command::RequestStepDown { election, reply }).await
    }

    /// Hands the seat over to the candidate with this id: whoever leads, be it this candidate or
    /// another one that is asked by way of the store's board, wraps up its work and gives up the seat
    /// in favour of that candidate; the others leave it the seat for a third of a lease. Returns when
    /// the leader has been told, not when the seat has moved: see [`events`](Self::events).
    ///
    /// # Errors
    /// If no such candidate stands, if it leads already or is not well, if nobody leads who could hand
    /// over or is doing so already, if the store has no board, or fails.
    pub async fn transfer_to(&self, candidate: &str) -> Result<(), Error> {
        let to = candidate.to_owned();
        self.ask(|election, reply| Command::Transfer { election, to, reply }).await
    }

    /// Who stands, the leader first: candidates of this election in all processes, as they have
    /// announced themselves on the store's board. One that died is listed for at most its lease.
    ///
    /// # Errors
    /// If the store has no board, or fails.
    pub async fn candidates(&self) -> Result<Vec<CandidateStatus>, Error> {
        let seat = self.shared.name.clone();
        self.ask(|_, reply| Command::Candidates { seat, reply }).await
    }

    /// Reports how well this candidate is, from 0 to 1, and what to tell about it. Below `min_health` it
    /// does not stand, and hands over if it leads; once it has been well for a lease, it stands again.
    ///
    /// Takes no time: the report is announced, and taken into account, by the engine.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// election.report_health(0.9, [("queue", "17")])?;
    /// election.report_health(1.0, ())?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the score is not from 0 to 1, or the metadata are longer than 64 KB: then nothing changes.
    pub fn report_health(&self, score: f64, metadata: impl Into<Metadata>) -> Result<(), Error> {
        let score = Score::new(score)
            .ok_or_else(|| Error::BadHealth(format!("a score of {score} makes no sense: it is from 0 to 1")))?;
        let metadata = metadata.into();
        Metadata::check(&metadata.0)?;
        self.engine.line().send(Command::Report { election: self.shared.id, score, metadata });
        Ok(())
    }

    /// Reports that this candidate is well (a score of 1) or not (0). See
    /// [`report_health`](Self::report_health).
    ///
    /// # Errors
    /// If the metadata are longer than 64 KB: then nothing changes.
    pub fn report_healthy(&self, healthy: bool, metadata: impl Into<Metadata>) -> Result<(), Error> {
        self.report_health(f64::from(u8::from(healthy)), metadata)
    }

    /// How the election fares as seen from here, for health checks of this program.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Hands over, if this candidate leads: its work wraps up, the seat is given up, and it does
    /// not stand again until another has led or two leases have passed. A request: it may be made
    /// from anywhere, from work and handlers too, and does not wait.
    pub fn step_down(&self) {
        self.engine.line().send(Command::StepDown { election: self.shared.id });
    }

    /// Ends this candidate's part in the election: its work wraps up, and the seat is given up
    /// (unless `release_on_stop` is off). A request: it may be made from anywhere, from work and
    /// handlers too, and does not wait; see [`stopped`](Self::stopped).
    pub fn stop(&self) {
        self.engine.line().send(Command::Stop { election: self.shared.id });
    }

    /// Waits until the election has ended here, with all work returned, and returns why.
    ///
    /// Not to be awaited by that work itself.
    pub async fn stopped(&self) -> Ended {
        self.shared.stopped().await
    }

    pub(crate) fn lease(&self) -> Duration {
        self.shared.lease
    }

    /// Sleeps on the engine's clock, or until the term is ending.
    pub(crate) async fn sleep(&self, span: Duration, term: &Term) {
        let (reply, slept) = oneshot::channel();
        self.engine.line().send(Command::Sleep { until: self.shared.clock.now() + span, reply });
        let ending = std::pin::pin!(term.ending());
        futures_util::future::select(slept, ending).await;
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(ElectionId, oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.engine.line().send(command(self.shared.id, reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.shared.state().ended.clone().unwrap_or(Ended::EngineGone).into()),
        }
    }
}

/// A look at an election without a part in it.
///
/// Dropping the last clone ends it.
#[derive(Clone, Debug)]
pub struct Observer(Arc<StopOnDrop>);

#[derive(Debug)]
struct StopOnDrop(Election);

impl Observer {
    pub(crate) fn new(election: Election) -> Self {
        Self(Arc::new(StopOnDrop(election)))
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.0.0.name()
    }

    /// Who leads, as far as can be seen from here; `None` also before the first look.
    pub fn leader(&self) -> Option<Leader> {
        self.0.0.leader()
    }

    /// What happens, from now on.
    pub fn events(&self) -> Events {
        self.0.0.events()
    }

    /// See [`Election::request_step_down`].
    ///
    /// # Errors
    /// If the store has no board, or fails.
    pub async fn request_step_down(&self) -> Result<Option<Leader>, Error> {
        self.0.0.request_step_down().await
    }

    /// See [`Election::transfer_to`].
    ///
    /// # Errors
    /// See there.
    pub async fn transfer_to(&self, candidate: &str) -> Result<(), Error> {
        self.0.0.transfer_to(candidate).await
    }

    /// See [`Election::candidates`].
    ///
    /// # Errors
    /// If the store has no board, or fails.
    pub async fn candidates(&self) -> Result<Vec<CandidateStatus>, Error> {
        self.0.0.candidates().await
    }

    /// See [`Election::health`].
    pub fn health(&self) -> Health {
        self.0.0.health()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What the engine and the handles of an election share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: ElectionId,
    pub(crate) name: SeatName,
    pub(crate) candidate: Candidate,
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
    pub(crate) fn new(id: ElectionId, name: SeatName, candidate: Candidate, clock: Clock, rules: &Rules) -> Self {
        Self {
            id,
            name,
            candidate,
            clock,
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

    fn health(&self) -> Health {
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

    fn subscribe(&self) -> Events {
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
