//! A candidacy being configured.

use std::sync::Arc;

use tenure_protocol::{EndReason, Incarnation, Leader, Rules, Takeover, Timing, Token};
use tokio_util::sync::CancellationToken;
use tracing::{Level, info, warn};

use crate::driver::{Check, Start};
use crate::election::Shared;
use crate::elections::Engine;
use crate::handlers::Handlers;
use crate::{
    Election, ElectionOptions, Error, Event, LifeKind, Metadata, Observer, Promises, Report, SeatName, Term, log, span,
};

/// A candidacy being configured. Nothing happens before [`start`](Self::start).
#[must_use = "nothing happens before `start()`"]
pub struct Builder {
    engine: Arc<Engine>,
    name: String,
    pub(crate) options: ElectionOptions,
    handlers: Handlers,
    stop_on: Option<CancellationToken>,
    check: Option<Check>,
    manual: bool,
}

impl Builder {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self {
            engine,
            name: name.to_owned(),
            options: ElectionOptions::default(),
            handlers: Handlers::default(),
            stop_on: None,
            check: None,
            manual: false,
        }
    }

    /// Takes over all options that these have; those set before stay where these have none.
    pub fn options(mut self, options: ElectionOptions) -> Self {
        self.options = self.options.overlaid(options);
        self
    }

    /// Adds to [`ElectionOptions::metadata`].
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.metadata.insert(key.into(), value.into());
        self
    }

    /// Asks this every so often how well the candidate is; the candidate does not stand before the
    /// first answer. The check runs on a thread of its own for all checks of this `Elections`, within
    /// a tokio runtime, so it may await what it likes; it should not block, or other checks wait. One
    /// that takes too long, panics or makes no sense counts as a score of 0.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// let election = elections
    ///     .election("nightly-jobs")
    ///     .health(async || std::fs::metadata("/mnt/data").is_ok())
    ///     .start()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn health<R: Into<Report>>(mut self, check: impl AsyncFn() -> R + Send + 'static) -> Self {
        self.check = Some(Check::new(check));
        self
    }

    /// Calls this for everything that happens. Handlers run in order on one thread of their own
    /// per `Elections`, so a slow one holds up the others, but never the election. They are dropped there when the
    /// election has ended. A handler that owns an `Elections` or `Election` keeps it running until then, although
    /// all other handles are gone: give it a [weak handle](crate::WeakElections) instead.
    pub fn on_event(mut self, handler: impl FnMut(Event) + Send + 'static) -> Self {
        self.handlers.on_event.push(Box::new(handler));
        self
    }

    /// Calls this when this candidate leads.
    pub fn on_started_leading(mut self, handler: impl FnMut(Term) + Send + 'static) -> Self {
        self.handlers.on_started_leading.push(Box::new(handler));
        self
    }

    /// Calls this when this candidate's term is about to end. The seat is not given up before it
    /// has returned, so it is the place to stop whatever `on_started_leading` has started.
    pub fn on_stopped_leading(mut self, handler: impl FnMut(Token, EndReason) + Send + 'static) -> Self {
        self.handlers.on_stopped_leading.push(Box::new(handler));
        self
    }

    /// Calls this when another leads, or nobody.
    pub fn on_new_leader(mut self, handler: impl FnMut(Option<Leader>) + Send + 'static) -> Self {
        self.handlers.on_new_leader.push(Box::new(handler));
        self
    }

    /// Stops the election when this token is cancelled.
    pub fn stop_on(mut self, token: CancellationToken) -> Self {
        self.stop_on = Some(token);
        self
    }

    /// Does not stand by itself, but only when asked to ([`Election::try_acquire`]).
    pub fn manual(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Starts: checks everything, hands the election to the engine, and returns without waiting.
    ///
    /// # Errors
    /// If a name, a duration or an option makes no sense, if the store cannot keep such a lease,
    /// if an election of this name runs here already, or if the engine cannot start.
    pub fn start(self) -> Result<Election, Error> {
        self.launch(true)
    }

    pub(crate) fn observe(mut self) -> Result<Observer, Error> {
        self.manual = true;
        self.launch(false).map(Observer::new)
    }

    fn launch(self, named: bool) -> Result<Election, Error> {
        let name = SeatName::new(&self.name)?;
        let mut candidate = self.engine.candidate(self.options.candidate.as_deref())?;
        if !named {
            // An observer must never take a seat for its own that a candidate of this process holds.
            candidate.incarnation = Incarnation::from_bits(rand::random());
        }
        let timing = self.options.durations()?.check()?;
        Metadata::check(&self.options.metadata)?;
        let lease = timing.lease();
        let health_every = self.options.health_every.unwrap_or(lease / 3);
        let health_timeout = self.options.health_timeout.unwrap_or(lease * 2 / 15);
        if health_every.is_zero() || health_timeout.is_zero() {
            return Err(Error::Option(
                "a health check needs time: health_every and health_timeout must not be 0".to_owned(),
            ));
        }
        if self.check.is_none() && self.options.health_command().is_some() {
            return Err(Error::Option(
                "health_cmd is for `tenure run`: have this program say how well it is with `health(…)`, or leave it out"
                    .to_owned(),
            ));
        }
        let rules = rules(&self.options, timing, &self.engine.promises, !self.manual)?;
        log_timing(&name, timing);
        let handlers = self.engine.handler_line(&name, self.handlers)?;
        let shared = Shared::new(self.engine.next_id(), name, candidate, &self.engine, &rules);
        let start = Start {
            shared: Arc::new(shared),
            rules,
            seed: rand::random(),
            handlers,
            stop_on: self.stop_on,
            check: self.check.map(|check| (check, health_every, health_timeout)),
            announces: named && !self.manual,
            on_overrun: self.options.on_overrun.unwrap_or_default(),
        };
        self.engine.start(start, named)
    }
}

/// Says what a user may not have meant.
fn log_timing(election: &SeatName, timing: Timing) {
    if let Some(asked) = timing.shortened_retry() {
        let (election, lease, retry_every) = (election.clone(), timing.lease(), timing.retry_every());
        log::emit(Level::INFO, move || {
            info!(%election, ?asked, ?retry_every, ?lease, "retry_every does not fit into the lease and is shortened");
        });
    }
    if let Some(give_up_after) = timing.give_up_after() {
        let election = election.clone();
        log::emit(Level::WARN, move || {
            warn!(%election, ?give_up_after, "a store that fails for give_up_after ends this candidate for good");
        });
    }
}

/// What the options and the store's promises come to.
fn rules(options: &ElectionOptions, timing: Timing, promises: &Promises, stands: bool) -> Result<Rules, Error> {
    let lease = timing.lease();
    let unsupported = |problem| Error::Unsupported { store: promises.store, problem };
    if lease < promises.min_lease {
        let (lease, least) = (span::show(lease), span::show(promises.min_lease));
        return Err(unsupported(format!("cannot keep a lease of {lease}: ask for {least} or more")));
    }
    if !lease.as_nanos().is_multiple_of(promises.lease_step.as_nanos().max(1)) {
        let (lease, step) = (span::show(lease), span::show(promises.lease_step));
        return Err(unsupported(format!("counts in steps of {step}: a lease of {lease} would be cut short")));
    }
    let takeover =
        if promises.over_is_proof { Takeover::Instant } else { options.takeover.unwrap_or(promises.takeover) };
    Ok(Rules {
        clock_trust: options.clock_trust.unwrap_or(promises.clock_trust),
        takeover,
        push: promises.push,
        spread: !promises.shared_heartbeat,
        stands,
        release_on_stop: options.release_on_stop.unwrap_or(true),
        priority: options.priority.unwrap_or(0),
        preempt: options.preempt.unwrap_or(false),
        min_health: options.least_health()?,
        step_down_when_unhealthy: options.step_down_when_unhealthy.unwrap_or(true),
        metadata: Arc::new(options.metadata.clone()),
        held_by_session: promises.life == LifeKind::Session || promises.shared_heartbeat,
        ..Rules::new(timing)
    })
}
