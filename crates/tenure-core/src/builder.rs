//! The builder that configures and starts a candidate.

use std::sync::{Arc, Mutex};

use tenure_protocol::{EndReason, Incarnation, Rules, Takeover, Timing, Token, shared_pairs};
use tokio_util::sync::CancellationToken;
use tracing::{Level, info, warn};

use crate::driver::{Check, Start};
use crate::election::Shared;
use crate::elections::Engine;
use crate::handlers::{HandlerLine, Handlers};
use crate::run::WorkOutcome;
use crate::{
    Election, ElectionOptions, Error, Event, Leader, LifeKind, Metadata, Observer, Occasion, Promises, Report,
    SeatName, Term, log, span,
};

/// Configures a candidate of one election, and starts it.
///
/// [`Elections::election`](crate::Elections::election) returns one. Nothing happens before [`start`](Self::start). All
/// options have defaults, and durations scale with the lease: see [`ElectionOptions`].
///
/// ```
/// use std::time::Duration;
/// # use tenure_core::{Elections, memory::MemoryStore};
/// # let elections = Elections::new(MemoryStore::new());
///
/// let election = elections
///     .election("outbox")
///     .candidate("web-1")
///     .lease(Duration::from_secs(10))
///     .metadata("zone", "east")
///     .on_new_leader(|leader| println!("the leader is now {leader:?}"))
///     .start()?;
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[must_use = "nothing happens before `start()`"]
pub struct Builder {
    engine: Arc<Engine>,
    name: String,
    pub(crate) options: ElectionOptions,
    handlers: Handlers,
    stop_on: Option<CancellationToken>,
    check: Option<Check>,
    manual: bool,
    occasion: Option<Occasion>,
}

impl Builder {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        Self {
            options: engine.settings.election(name),
            engine,
            name: name.to_owned(),
            handlers: Handlers::default(),
            stop_on: None,
            check: None,
            manual: false,
            occasion: None,
        }
    }

    /// Sets all options that `options` sets. Options that it does not set keep their values.
    ///
    /// ```
    /// # use tenure_core::{ElectionOptions, Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// let mut options = ElectionOptions::default();
    /// options.priority = Some(10);
    /// let election = elections.election("outbox").options(options).start()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn options(mut self, options: ElectionOptions) -> Self {
        self.options = self.options.overlaid(options);
        self
    }

    /// Adds a pair of text that others see beside this candidate, and beside the leader if it leads. At most 64 KiB in
    /// all; see [`ElectionOptions::metadata`].
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.metadata.insert(key.into(), value.into());
        self
    }

    /// Runs a health check of this candidate at regular intervals (`health_every`).
    ///
    /// The candidate does not stand, and is not listed, before the first result. The check returns a `bool`, a score
    /// from 0 to 1, a `Result` of either, or one of these with metadata: see [`Report`]. A check that takes longer
    /// than `health_timeout`, panics or returns a score out of range counts as a score of 0.
    ///
    /// All checks of an `Elections` share one thread with a tokio runtime. A check can await anything; it should not
    /// block, because other checks would wait for it.
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

    /// Calls a handler for every [`Event`].
    ///
    /// The handlers of an election run one event at a time and in order, on a thread other than the engine's. A slow
    /// handler delays the other handlers of its election, but no renewal and no other election. Each `on_…` method can
    /// be called several times; all handlers are kept. If `start()` is called within a tokio runtime, handlers run
    /// within it, so `tokio::spawn` works in them. A handler that panics is reported as an
    /// [`Error`](crate::EventKind::Error) event and in [`Election::health`]; the election goes on.
    ///
    /// Handlers are dropped when the election has ended. A handler that owns an `Elections` or `Election` keeps all
    /// elections running until then: give it a [weak handle](crate::WeakElections) instead.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// let election = elections
    ///     .election("outbox")
    ///     .on_event(|event| println!("{}: {:?}", event.election, event.kind))
    ///     .start()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn on_event(mut self, handler: impl FnMut(Event) + Send + 'static) -> Self {
        self.handlers.on_event.push(Box::new(handler));
        self
    }

    /// Runs an asynchronous handler in every term of this candidate, on a separate thread.
    ///
    /// The handler holds its term, as the work of [`Election::run_while_leader`] does: [`Term::ending`] resolves when
    /// the handler should wrap up, the seat is not released before the handler has returned, and the handler is
    /// dropped at the end of the term, at the point where it awaits. If `start()` is called within a tokio runtime,
    /// the handler runs within it; otherwise within a runtime for this handler alone. The timers and sockets of a
    /// current-thread runtime only make progress while your program is in its `block_on`. A handler can block its
    /// thread, but then it cannot be dropped: it must check [`Term::is_ending`].
    ///
    /// When the handler returns, this candidate keeps the seat. If it panics or returns an error, an
    /// [`Error`](crate::EventKind::Error) event reports that, and [`Election::health`] is unhealthy until the term
    /// ends; the seat is kept as well.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # async fn reconcile() {}
    /// # let elections = Elections::new(MemoryStore::new());
    /// let election = elections
    ///     .election("controller")
    ///     .on_started_leading(async |term| {
    ///         while !term.is_ending() {
    ///             reconcile().await;
    /// #           tokio::task::yield_now().await;
    ///         }
    ///     })
    ///     .start()?;
    /// # election.elected_blocking()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn on_started_leading<R: WorkOutcome>(mut self, handler: impl AsyncFnMut(Term) -> R + Send + 'static) -> Self {
        self.handlers.on_started_leading.push(Arc::new(Mutex::new(handler)));
        self
    }

    /// Calls a handler when a term of this candidate begins to end, with its token and the reason.
    ///
    /// The seat is not released before the handler has returned. A handler that takes longer than `drain` (or
    /// `stop_grace`, if the leader stops or hands over) overruns its term, as work does. Use it to stop what
    /// `on_started_leading` has started elsewhere.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// let election = elections
    ///     .election("outbox")
    ///     .on_stopped_leading(|token, why| println!("term {token} ends: {}", why.as_str()))
    ///     .start()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn on_stopped_leading(mut self, handler: impl FnMut(Token, EndReason) + Send + 'static) -> Self {
        self.handlers.on_stopped_leading.push(Box::new(handler));
        self
    }

    /// Calls a handler with `true` when this candidate begins to lead, and with `false` when its term begins to end.
    ///
    /// For a gauge or a label. Do not guard work with such a flag: after a pause of the process it is out of date,
    /// while [`Election::is_leader`] reads the clock.
    pub fn on_leadership_changed(mut self, handler: impl FnMut(bool) + Send + 'static) -> Self {
        self.handlers.on_leadership_changed.push(Box::new(handler));
        self
    }

    /// Calls a handler when the leader changes, with the new leader; `None` if there is no leader. The event
    /// [`LeaderChanged`](crate::EventKind::LeaderChanged) also has the previous leader.
    pub fn on_new_leader(mut self, handler: impl FnMut(Option<Leader>) + Send + 'static) -> Self {
        self.handlers.on_new_leader.push(Box::new(handler));
        self
    }

    /// Calls a handler when the store begins to fail or fails in a different way, and when another handler panics or
    /// returns an error.
    ///
    /// Called once per change, not for every failed call. The election goes on: a leader leads until its lease runs
    /// out, and candidates stand again when the store works. See [`Election::health`].
    pub fn on_error(mut self, handler: impl FnMut(Arc<Error>) + Send + 'static) -> Self {
        self.handlers.on_error.push(Box::new(handler));
        self
    }

    /// Stops the election when the token is cancelled, as [`Election::stop`] does. For programs that end by a
    /// cancellation token.
    ///
    /// ```
    /// # use tenure_core::{CancellationToken, Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// let shutdown = CancellationToken::new();
    /// let election = elections.election("outbox").stop_on(shutdown.clone()).start()?;
    /// shutdown.cancel();
    /// election.stopped().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_on(mut self, token: CancellationToken) -> Self {
        self.stop_on = Some(token);
        self
    }

    /// Makes the candidate stand for one occasion, which at most one of all candidates claims: the scheduled time of a
    /// job, for example.
    ///
    /// The write that wins the seat claims the occasion, and the seat keeps the claim. A candidate that finds its
    /// occasion claimed leaves the election with [`Ended::Claimed`](crate::Ended::Claimed), also if it starts when the
    /// job is over. Work that returns before its term ends is reported with [`Term::finish`], or by
    /// [`Election::run_then_release`]. If the term ends before that, the occasion stays claimed and nobody runs it
    /// again, unless it is [resumable](Occasion::resumable).
    ///
    /// ```
    /// # use tenure_core::{Elections, Ended, Occasion, memory::MemoryStore};
    /// # use std::time::{Duration, SystemTime};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// # let midnight = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_614_400);
    /// let election = elections.election("nightly-report").occasion(Occasion::at(midnight)).start()?;
    /// let ended = election.run_then_release(async |_term| println!("writing the report")).await;
    /// assert!(matches!(ended, Ended::Claimed { done: true, .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn occasion(mut self, occasion: Occasion) -> Self {
        self.occasion = Some(occasion);
        self
    }

    /// Makes the candidate bid only when [`Election::try_acquire`] is called, and never otherwise. It is not listed
    /// among the candidates.
    pub fn manual(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Starts the candidate, and returns its handle without waiting for the store.
    ///
    /// Errors of the store show in [`Election::health`], in events and in the log, and the candidate retries.
    ///
    /// # Errors
    /// If a name, a duration or an option is not valid ([`Error::BadName`], [`Error::Timing`], [`Error::Option`], …),
    /// if the store cannot keep such a lease ([`Error::Unsupported`]), if an election of this name already runs here
    /// ([`Error::AlreadyRunning`]), or if the engine cannot start ([`Error::Engine`], [`Error::Forked`]).
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
            // With the incarnation of this process, an observer would mistake the seat of a local candidate for its own.
            candidate.incarnation = Incarnation::from_bits(rand::random());
        }
        let timing = self.options.durations()?.check()?;
        Metadata::check(&self.options.metadata)?;
        let lease = timing.lease();
        let health_every = self.options.health_every.unwrap_or(lease / 3);
        let health_timeout = self.options.health_timeout.unwrap_or(lease * 2 / 15);
        if health_every.is_zero() || health_timeout.is_zero() {
            return Err(Error::Option(
                "health_every and health_timeout must not be 0; leave them out to scale them from the lease".to_owned(),
            ));
        }
        if self.check.is_none() && self.options.health_command().is_some() {
            return Err(Error::Option(
                "health_cmd only works with `tenure run`; remove it, or give the builder a check with `health(…)`"
                    .to_owned(),
            ));
        }
        let rules = self.engine.share(Rules {
            occasion: self.occasion.map(Occasion::rule),
            ..rules(&self.options, timing, &self.engine.promises, !self.manual)?
        });
        log_timing(&name, timing);
        let shared = Arc::new(Shared::new(self.engine.next_id(), name, candidate, &self.engine, &rules));
        let handlers = if self.handlers.is_empty() {
            None
        } else {
            Some(Box::new(HandlerLine::new(shared.clone(), self.handlers, self.engine.handler_threads()?)))
        };
        let start = Start {
            shared,
            rules,
            seed: rand::random(),
            handlers,
            stop_on: self.stop_on,
            check: self.check.map(|check| Box::new((check, health_every, health_timeout))),
            announces: named && !self.manual,
            on_overrun: self.options.on_overrun.unwrap_or_default(),
        };
        self.engine.start(start, named)
    }
}

/// Logs timing that the user possibly did not intend.
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
            warn!(%election, ?give_up_after, "this candidate gives up for good if the store fails for give_up_after");
        });
    }
}

/// Combines the options and the store's promises into the rules of the machine.
fn rules(options: &ElectionOptions, timing: Timing, promises: &Promises, stands: bool) -> Result<Rules, Error> {
    let lease = timing.lease();
    let unsupported = |problem| Error::Unsupported { store: promises.store, problem };
    if lease < promises.min_lease {
        let (lease, least) = (span::show(lease), span::show(promises.min_lease));
        return Err(unsupported(format!("cannot keep a lease of {lease}; use {least} or more")));
    }
    if lease > promises.max_lease {
        let (lease, most) = (span::show(lease), span::show(promises.max_lease));
        return Err(unsupported(format!("cannot keep a lease of {lease}; use {most} or less")));
    }
    if !lease.as_nanos().is_multiple_of(promises.lease_step.as_nanos().max(1)) {
        let (lease, step) = (span::show(lease), span::show(promises.lease_step));
        return Err(unsupported(format!("cannot keep a lease of {lease} exactly; use a multiple of {step}")));
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
        metadata: shared_pairs(options.metadata.clone()),
        held_by_session: promises.life == LifeKind::Session || promises.shared_heartbeat,
        ..Rules::new(timing)
    })
}
