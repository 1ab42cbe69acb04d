//! Publishes the machine's actions to the users of an election: in its handles, to listeners and handlers, and as one
//! log line per change of state.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Action, Bid, Candidate, Crash, EndReason, Fault, Input, Moment, Token};
use tracing::{Level, debug, error, info, warn};

use super::{EngineHandle, Entry};
use crate::events;
use crate::handlers::ON_STARTED_LEADING;
use crate::layers::GIVEN_UP;
use crate::leader::time;
use crate::log::spans::emit_in;
use crate::options::OnOverrun;
use crate::term::{TermState, WorkGuard};
use crate::{Ended, Error, EventKind, Leader, SeatName, StoreError, Term, telemetry};

impl Entry {
    pub(super) fn publish(&mut self, action: Action, handle: &EngineHandle, inputs: &mut VecDeque<Input>) {
        match action {
            Action::Began { token, until } => self.on_began(token, until, handle),
            Action::Extended { token, until } => self.on_extended(token, until),
            Action::Ending { token, why, by } => {
                if self.on_ending(token, why, by) {
                    inputs.push_back(Input::Drained(token));
                }
            }
            Action::Ended { token, why } => self.on_ended(token, why),
            Action::Overran { token } => self.on_overran(token),
            Action::Fit(fit) => self.on_fit(fit),
            Action::Crashed(crash) => self.on_crashed(crash),
            Action::Leader(leader) => self.on_leader(leader),
            Action::BidSettled(bid) => self.on_bid_settled(bid),
            Action::BidLost => self.on_bid_lost(),
            Action::Failing(fault) => self.on_failing(fault),
            Action::Recovered => {
                self.log(Level::INFO, |election, candidate| info!(%election, %candidate, "the store works again"));
                self.notify_and(EventKind::Recovered, |state| state.failing = None);
            }
            Action::Read
            | Action::Swap { .. }
            | Action::Renew { .. }
            | Action::Watch { .. }
            | Action::ReadBoard
            | Action::ReadRoster
            | Action::Ask(_)
            | Action::WakeAt(_)
            | Action::Stopped(_) => unreachable!("done by the driver"),
        }
    }

    /// Ends an election whose machine is not stepped any more. A user that was notified of the beginning of a term is
    /// notified of its end.
    pub(super) fn abandon(mut self) {
        let term = self.shared.state().term.clone();
        if let Some(term) = term {
            let (token, why) = (term.token(), EndReason::EngineGone);
            if !term.is_ending() {
                self.on_ending(token, why, Moment::ORIGIN);
            }
            self.on_ended(token, why);
        }
        self.trace_written(GIVEN_UP);
        if self.shared.state().ended.is_none() {
            self.publish_stopped(Ended::EngineGone);
        }
    }

    fn on_began(&mut self, token: Token, until: Moment, handle: &EngineHandle) {
        self.trace_term(token, until);
        let shared = &self.shared;
        self.log(
            Level::INFO,
            move |election, candidate| info!(%election, %candidate, token = token.get(), "this candidate leads"),
        );
        let term = Arc::new(TermState::new(token, until, shared.clone(), handle.clone()));
        // `on_started_leading` is called a moment later, so the term is held for it from the beginning.
        let handler = self.handlers.as_ref().filter(|handlers| handlers.has_on_started).map(|_| term.hold_open());
        let leader = Leader {
            candidate: shared.candidate.clone(),
            token,
            since: time(self.since_ms),
            metadata: self.machine.rules().metadata.clone(),
        };
        self.notify_with(EventKind::BecameLeader { term: Term::new(term.clone()) }, handler, |state| {
            state.term = Some(term);
            state.led_before = state.leader.replace(leader).map(Box::new);
            state.last_renewal = Some(SystemTime::now());
            shared.set_leads_until(Some(until));
        });
    }

    fn on_extended(&self, token: Token, until: Moment) {
        let mut state = self.shared.state();
        state.last_renewal = Some(SystemTime::now());
        if let Some(term) = state.term.as_ref().filter(|term| term.token() == token) {
            term.extend(until);
            if !term.is_ending() {
                self.shared.set_leads_until(Some(until));
            }
        }
        drop(state);
        telemetry::extended(&self.shared, until);
    }

    /// Returns whether no work is running.
    fn on_ending(&self, token: Token, why: EndReason, by: Moment) -> bool {
        let shared = &self.shared;
        let Some(term) = shared.state().term.clone() else { return true };
        // First, so that a listener of the event finds `is_leader()` false.
        shared.set_leads_until(None);
        // The end waits for `on_stopped_leading` as it does for work.
        let handler = self.handlers.as_ref().filter(|handlers| handlers.has_on_stopped).map(|_| term.hold_open());
        let drained = term.end(why, by);
        self.log(Level::INFO, move |election, candidate| {
            info!(%election, %candidate, token = token.get(), why = why.as_str(), "this candidate stops leading");
        });
        self.notify_with(EventKind::Ending { token, why }, handler, |_| {});
        drained
    }

    fn on_ended(&mut self, token: Token, why: EndReason) {
        let shared = &self.shared;
        shared.set_leads_until(None);
        let term = shared.state().term.clone();
        if let Some(term) = term {
            term.finish();
        }
        self.log(Level::INFO, move |election, candidate| {
            info!(%election, %candidate, token = token.get(), why = why.as_str(), "the term is over");
        });
        self.trace_term_end(why.label());
        self.notify_and(EventKind::LostLeadership { token, why }, |state| {
            state.term = None;
            state.last_renewal = None;
            // The handler is called again in the next term.
            state.failed_handlers.retain(|(handler, _), _| *handler != ON_STARTED_LEADING);
        });
    }

    fn on_overran(&self, token: Token) {
        let shared = &self.shared;
        self.log(Level::ERROR, move |election, candidate| {
            error!(%election, %candidate, token = token.get(), "work is still running although its term is over");
        });
        self.notify_and(EventKind::Overran { token }, |state| state.overran = Some(token));
        if self.on_overrun == OnOverrun::Abort {
            abort_with_line(format!(
                "tenure: work of term {token} of {:?} overran; ending the process, because on_overrun is abort",
                shared.name.as_str()
            ));
        }
    }

    fn on_fit(&self, healthy: bool) {
        if healthy {
            self.log(
                Level::INFO,
                |election, candidate| info!(%election, %candidate, "this candidate is healthy again"),
            );
        } else {
            self.log(
                Level::WARN,
                |election, candidate| warn!(%election, %candidate, "this candidate is not healthy enough to lead"),
            );
        }
        self.notify_and(EventKind::HealthChanged { healthy }, |state| state.unfit = !healthy);
    }

    fn on_crashed(&self, crash: Arc<Crash>) {
        let logged = crash.clone();
        self.log(Level::WARN, move |election, _| {
            let Crash { of, token, by } = &*logged;
            warn!(%election, leader = %of.id, token = token.get(), %by, "the leader crashed, and its last will freed the seat");
        });
        self.notify_and(EventKind::LeaderCrashed { crash }, |_| {});
    }

    fn on_leader(&mut self, leader: Option<tenure_protocol::Leader>) {
        let leader = leader.map(|mut leader| {
            if leader.candidate.incarnation == self.shared.candidate.incarnation {
                leader.since_ms = self.since_ms;
            }
            Leader::from(leader)
        });
        match leader.as_ref().map(|leader| (leader.candidate.clone(), leader.token)) {
            Some((leader, token)) => {
                self.log(
                    Level::INFO,
                    move |election, _| info!(%election, %leader, token = token.get(), "the election has a new leader"),
                );
            }
            None => self.log(Level::INFO, |election, _| info!(%election, "the election has no leader")),
        }
        let is_own = leader.as_ref().is_some_and(|leader| leader.candidate == self.shared.candidate);
        let mut state = self.shared.state();
        // The beginning of an own term has replaced the leader already.
        let previous = if is_own { state.led_before.take().map(|leader| *leader) } else { state.leader.clone() };
        drop(state);
        self.measure_leader(leader.as_ref(), previous.as_ref());
        self.notify_and(EventKind::LeaderChanged { leader: leader.clone(), previous }, |state| state.leader = leader);
    }

    fn on_bid_lost(&self) {
        self.log(
            Level::DEBUG,
            |election, candidate| debug!(%election, %candidate, "another candidate took the seat first"),
        );
        self.notify_and(EventKind::LostBid, |_| {});
    }

    fn on_bid_settled(&mut self, bid: Bid) {
        let bids = std::mem::take(&mut self.bids).into_iter();
        match bid {
            Bid::Won(token) => {
                let term = self.shared.state().term.clone().filter(|term| term.token() == token);
                // All callers that asked at the same time share one releasing term.
                let term =
                    term.map(|term| if self.machine.rules().stands { Term::new(term) } else { Term::releasing(term) });
                bids.for_each(|reply| drop(reply.send(Ok(term.clone()))));
            }
            Bid::Taken => bids.for_each(|reply| drop(reply.send(Ok(None)))),
            Bid::Failed(fault) => {
                let error = self.error_of(fault);
                bids.for_each(|reply| drop(reply.send(Err(Error::Store(error.clone())))));
            }
        }
    }

    fn on_failing(&self, fault: Fault) {
        let error = self.error_of(fault);
        let shared = &self.shared;
        let (denied, logged, store) = (fault == Fault::Denied, error.clone(), shared.store);
        self.log(if denied { Level::ERROR } else { Level::WARN }, move |election, candidate| {
            let (error, cause) = (&*logged, std::error::Error::source(&*logged).map(ToString::to_string));
            if denied {
                error!(%election, %candidate, store, %error, cause, "the store denies calls of this candidate");
            } else {
                warn!(%election, %candidate, store, %error, cause, "the store fails");
            }
        });
        self.notify_and(EventKind::Error { error: Arc::new(Error::Store(error.clone())) }, |state| {
            if state.failing.is_none() {
                state.failing_since = shared.clock.now();
            }
            state.failing = Some(error);
        });
    }

    pub(super) fn publish_stopped(&mut self, why: Ended) {
        let logged = why.clone();
        self.log(Level::INFO, move |election, candidate| {
            info!(%election, %candidate, why = %logged, "the election has ended in this process");
        });
        for reply in self.bids.drain(..) {
            let _ = reply.send(Err(Error::Ended(why.clone())));
        }
        self.notify_and(EventKind::Stopped { why: why.clone() }, |state| {
            state.leader = None;
            state.ended = Some(why);
        });
    }

    fn error_of(&self, fault: Fault) -> Arc<StoreError> {
        self.last_error.clone().filter(|error| error.fault() == fault).unwrap_or_else(|| {
            // The machine itself refuses to bid, because there is no higher token.
            Arc::new(StoreError::denied(
                "the seat has the highest possible token; remove the seat, or use another election name",
            ))
        })
    }

    /// Logs a line about this election, on the thread that logs and within the span of the term that runs.
    fn log(&self, level: Level, line: impl FnOnce(&SeatName, &Candidate) + Send + 'static) {
        let shared = self.shared.clone();
        emit_in(self.shared.term_span.get(), level, move || line(&shared.name, &shared.candidate));
    }

    fn notify_and(&self, kind: EventKind, change: impl FnOnce(&mut crate::election::State)) {
        self.notify_with(kind, None, change);
    }

    fn notify_with(&self, kind: EventKind, guard: Option<WorkGuard>, change: impl FnOnce(&mut crate::election::State)) {
        let event = self.shared.event(kind);
        // Before the event is published, so that a program that receives the event and flushes finds it counted.
        self.measure_event(&event.kind);
        self.shared.publish(&event, change);
        if let Some(handlers) = &self.handlers {
            handlers.push(events::Entry { event, guard });
        }
    }
}

/// Aborts the process, after a line on standard error if standard error neither blocks nor fails.
fn abort_with_line(line: String) -> ! {
    let (written, wait) = std::sync::mpsc::channel::<()>();
    let write = move || {
        let _ = writeln!(std::io::stderr(), "{line}");
        drop(written);
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = wait.recv_timeout(Duration::from_millis(200));
    }
    std::process::abort()
}
