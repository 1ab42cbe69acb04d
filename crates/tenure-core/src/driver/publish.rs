//! What the machine says, told to the users of an election: in its handles, to listeners and
//! handlers, and one line of log per change of state.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Action, Bid, Candidate, EndReason, Fault, Input, Leader, Moment, Token};
use tracing::{Level, error, info, warn};

use super::{EngineHandle, Entry};
use crate::events;
use crate::options::OnOverrun;
use crate::term::{TermState, WorkGuard};
use crate::{Ended, Error, Event, SeatName, StoreError, Term, log};

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
            Action::Leader(leader) => self.on_leader(leader),
            Action::BidSettled(bid) => self.on_bid_settled(bid),
            Action::Failing(fault) => self.on_failing(fault),
            Action::Recovered => {
                self.log(Level::INFO, |election, candidate| info!(%election, %candidate, "the store works again"));
                self.tell_and(Event::Recovered, |state| state.failing = None);
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

    /// Nobody steps this machine any more. Whoever was told that a term began is told that it ended.
    pub(super) fn abandon(mut self) {
        let term = self.shared.state().term.clone();
        if let Some(term) = term {
            let (token, why) = (term.token(), EndReason::EngineGone);
            if !term.is_ending() {
                self.on_ending(token, why, Moment::ORIGIN);
            }
            self.on_ended(token, why);
        }
        if self.shared.state().ended.is_none() {
            self.publish_stopped(Ended::EngineGone);
        }
    }

    fn on_began(&self, token: Token, until: Moment, handle: &EngineHandle) {
        let shared = &self.shared;
        self.log(Level::INFO, move |election, candidate| info!(%election, %candidate, %token, "leads"));
        let state = TermState::new(token, until, shared.clock.clone(), handle.clone(), shared.id);
        let term = Arc::new(state);
        self.tell_and(Event::BecameLeader { term: Term::new(term.clone()) }, |state| {
            state.term = Some(term);
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
    }

    /// Returns whether there is no work to wait for.
    fn on_ending(&self, token: Token, why: EndReason, by: Moment) -> bool {
        let shared = &self.shared;
        let Some(term) = shared.state().term.clone() else { return true };
        // Whoever hears of it must not find us leading.
        shared.set_leads_until(None);
        // The end waits for `on_stopped_leading` as it does for work.
        let handler = self.handlers.as_ref().filter(|handlers| handlers.has_on_stopped).map(|_| term.hold_open());
        let drained = term.end(why, by);
        self.log(Level::INFO, move |election, candidate| {
            info!(%election, %candidate, %token, why = why.as_str(), "stops leading");
        });
        self.tell_with(Event::Ending { token, why }, handler, |_| {});
        drained
    }

    fn on_ended(&self, token: Token, why: EndReason) {
        let shared = &self.shared;
        shared.set_leads_until(None);
        let term = shared.state().term.clone();
        if let Some(term) = term {
            term.finish();
        }
        self.log(Level::INFO, move |election, candidate| {
            info!(%election, %candidate, %token, why = why.as_str(), "the term is over");
        });
        self.tell_and(Event::LostLeadership { token, why }, |state| {
            state.term = None;
            state.last_renewal = None;
        });
    }

    fn on_overran(&self, token: Token) {
        let shared = &self.shared;
        self.log(Level::ERROR, move |election, candidate| {
            error!(%election, %candidate, %token, "work is still running though its term is over");
        });
        self.tell_and(Event::Overran { token }, |state| state.overran = Some(token));
        if self.on_overrun == OnOverrun::Abort {
            abort_saying(format!(
                "tenure: work of term {token} of {:?} overran: ending the process, as asked",
                shared.name.as_str()
            ));
        }
    }

    fn on_fit(&self, healthy: bool) {
        if healthy {
            self.log(Level::INFO, |election, candidate| info!(%election, %candidate, "is well again"));
        } else {
            self.log(Level::WARN, |election, candidate| warn!(%election, %candidate, "is not well enough to lead"));
        }
        self.tell_and(Event::HealthChanged { healthy }, |state| state.unfit = !healthy);
    }

    fn on_leader(&self, mut leader: Option<Leader>) {
        if let Some(leader) = &mut leader
            && leader.candidate.incarnation == self.shared.candidate.incarnation
        {
            leader.since_ms = self.since_ms;
        }
        match leader.as_ref().map(|leader| (leader.candidate.clone(), leader.token)) {
            Some((leader, token)) => {
                self.log(Level::INFO, move |election, _| info!(%election, %leader, %token, "has a leader"));
            }
            None => self.log(Level::INFO, |election, _| info!(%election, "has no leader")),
        }
        self.tell_and(Event::LeaderChanged { leader: leader.clone() }, |state| state.leader = leader);
    }

    fn on_bid_settled(&mut self, bid: Bid) {
        let bids = std::mem::take(&mut self.bids).into_iter();
        match bid {
            Bid::Won(token) => {
                let term = self.shared.state().term.clone().filter(|term| term.token() == token);
                // One releasing term, shared by all who asked at the same time.
                let term =
                    term.map(|term| if self.machine.rules().stands { Term::new(term) } else { Term::releasing(term) });
                bids.for_each(|reply| drop(reply.send(Ok(term.clone()))));
            }
            Bid::Taken => bids.for_each(|reply| drop(reply.send(Ok(None)))),
            Bid::Failed(fault) => {
                let error = self.complaint(fault);
                bids.for_each(|reply| drop(reply.send(Err(Error::Store(error.clone())))));
            }
        }
    }

    fn on_failing(&self, fault: Fault) {
        let error = self.complaint(fault);
        let shared = &self.shared;
        let (denied, told, store) = (fault == Fault::Denied, error.clone(), shared.store);
        self.log(if denied { Level::ERROR } else { Level::WARN }, move |election, candidate| {
            let (error, cause) = (&*told, std::error::Error::source(&*told).map(ToString::to_string));
            if denied {
                error!(%election, %candidate, store, %error, cause, "the store denies us");
            } else {
                warn!(%election, %candidate, store, %error, cause, "the store fails");
            }
        });
        self.tell_and(Event::Error { error: error.clone() }, |state| {
            if state.failing.is_none() {
                state.failing_since = shared.clock.now();
            }
            state.failing = Some(error);
        });
    }

    pub(super) fn publish_stopped(&mut self, why: Ended) {
        let told = why.clone();
        self.log(Level::INFO, move |election, candidate| info!(%election, %candidate, why = %told, "has ended here"));
        for reply in self.bids.drain(..) {
            let _ = reply.send(Err(Error::Ended(why.clone())));
        }
        self.tell_and(Event::Stopped { why: why.clone() }, |state| {
            state.leader = None;
            state.ended = Some(why);
        });
    }

    fn complaint(&self, fault: Fault) -> Arc<StoreError> {
        self.complaint.clone().filter(|error| error.fault() == fault).unwrap_or_else(|| {
            // The machine itself refuses: there is no higher token.
            Arc::new(StoreError::denied("the seat has the highest token there is: remove it, or use another name"))
        })
    }

    /// Logs a line about this election, on the thread that logs.
    fn log(&self, level: Level, line: impl FnOnce(&SeatName, &Candidate) + Send + 'static) {
        let shared = self.shared.clone();
        log::emit(level, move || line(&shared.name, &shared.candidate));
    }

    fn tell_and(&self, event: Event, change: impl FnOnce(&mut crate::election::State)) {
        self.tell_with(event, None, change);
    }

    fn tell_with(&self, event: Event, guard: Option<WorkGuard>, change: impl FnOnce(&mut crate::election::State)) {
        self.shared.publish(&event, change);
        #[cfg(feature = "metrics")]
        crate::layers::metrics::count(&self.shared.name, &event);
        if let Some(handlers) = &self.handlers {
            handlers.push(events::Entry { event, guard });
        }
    }
}

/// Ends the process, after a line on standard error if that neither blocks nor fails.
fn abort_saying(line: String) -> ! {
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
