//! Performs the actions of a machine, publishes its reports, and runs the work of its terms.
//!
//! Work begins with its term, is asked to wrap up when the term is ending, and returns some time later.
//! Cuttable work is dropped once its term is over by the node's own clock. Other work runs until it returns.

use tenure_protocol::{Action, Input, Stopped, Token};

use super::board::BoardRequest;
use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::FaultKind;
use crate::invariants::What;
use crate::node::{Arrival, NodeNr, Published, Work};
use crate::plan::Weather;
use crate::store::SessionId;

impl World {
    pub(super) fn act(&mut self, nr: NodeNr, action: &Action, won_on: Option<SessionId>) {
        let life = self.nodes[nr].life;
        match action {
            Action::Read | Action::Swap { .. } | Action::Renew { .. } => self.send(nr, action),
            Action::Watch { seat, requests } => self.watch(nr, seat.clone(), *requests),
            Action::ReadBoard => self.call_board(nr, BoardRequest::Requests),
            Action::ReadRoster => self.call_board(nr, BoardRequest::Roster),
            Action::Ask(request) => self.call_board(nr, BoardRequest::Ask(request.clone())),
            Action::Fit(fit) => self.announce_fitness(nr, *fit),
            Action::WakeAt(moment) => {
                self.nodes[nr].wake = Some(*moment);
                let lag = self.dice.below(nanos(self.plan.latency) / 4);
                let at = self.nodes[nr].clock.when(*moment).max(self.now) + lag;
                self.at(at, Event::Arrive(nr, life, Arrival::Wake(*moment)));
            }
            Action::Began { token, until } => {
                self.stats().terms += 1;
                self.nodes[nr].term = Some(Published {
                    token: *token,
                    until: *until,
                    ending: None,
                    session: won_on,
                    knows_of_loss: false,
                });
                self.begin_work(nr, *token);
            }
            Action::Extended { token, until } => {
                if let Some(term) = self.nodes[nr].term.as_mut().filter(|term| term.token == *token) {
                    term.until = *until;
                    term.session = won_on.or(term.session);
                }
            }
            Action::Ending { token, why, by } => {
                if let Some(term) = self.nodes[nr].term.as_mut().filter(|term| term.token == *token) {
                    term.until = term.until.min(*by);
                    term.ending = Some(*why);
                }
                self.wrap_up(nr, *token);
            }
            Action::Ended { token, .. } => {
                self.nodes[nr].term = None;
                self.record_term_end(nr);
                // Cuttable work is dropped here, and returns a moment later.
                if self.nodes[nr].work.iter().any(|work| work.token == *token && work.cuttable) {
                    self.after(1000, Event::Arrive(nr, life, Arrival::Returned(*token)));
                }
            }
            Action::Stopped(why) => {
                if matches!(why, Stopped::GaveUp { .. }) {
                    self.count(FaultKind::GiveUp);
                }
                // Takes effect after this step.
                self.nodes[nr].asked_to_stop = Some(Time::MAX);
            }
            Action::Leader(None) if self.plan.parts[nr].manual && self.now < self.plan.quiet_at => {
                // Users of a manual election who wait for a chance to bid.
                let delay = self.dice.below(nanos(self.plan.latency));
                self.after(delay, Event::Arrive(nr, life, Arrival::Notification(Input::Bid)));
            }
            Action::Overran { .. }
            | Action::Crashed(_)
            | Action::Leader(_)
            | Action::BidSettled(_)
            | Action::BidLost
            | Action::Failing(_)
            | Action::Recovered => {}
        }
        if matches!(action, Action::Began { .. } | Action::Extended { .. } | Action::Ending { .. })
            && let Some(term) = &self.nodes[nr].term
        {
            let (token, at) = (term.token, self.nodes[nr].clock.when(term.until));
            self.at(at, Event::Cut(nr, life, token));
        }
    }

    /// Ends a stopped election, together with its process or without it. Another one starts later.
    pub(super) fn stopped(&mut self, nr: NodeNr) {
        self.leave_roster(nr);
        if self.plan.parts[nr].outlives {
            let node = &mut self.nodes[nr];
            (node.resting, node.watch, node.seen) = (true, None, None);
            self.rest(nr);
        } else {
            self.kill(nr);
        }
        let delay = self.dice.below(nanos(self.plan.longest_lease()) * 2);
        self.start_in(nr, delay);
    }

    /// Lets a stopped election finish its remaining work in the background.
    pub(super) fn rest(&mut self, nr: NodeNr) {
        if self.nodes[nr].machine.as_ref().is_some_and(|machine| machine.is_over()) {
            self.check(&What::Gone(nr));
            (self.nodes[nr].machine, self.nodes[nr].call) = (None, None);
        }
    }

    fn begin_work(&mut self, nr: NodeNr, token: Token) {
        if self.plan.occasions.is_some() && self.dice.chance(700) {
            // The work of an occasion returns by itself.
            let (life, takes) = (self.nodes[nr].life, self.dice.below(nanos(self.plan.longest_lease()) * 2));
            self.after(takes, Event::Arrive(nr, life, Arrival::Notification(Input::Yield)));
        }
        if self.dice.chance(800) {
            let cuttable = matches!(self.plan.weather, Weather::Calm | Weather::Gentle) || self.dice.chance(800);
            self.nodes[nr].work.push(Work { token, cuttable });
        }
    }

    fn wrap_up(&mut self, nr: NodeNr, token: Token) {
        let life = self.nodes[nr].life;
        let Some(work) = self.nodes[nr].work.iter().find(|work| work.token == token) else {
            return self.after(1, Event::Arrive(nr, life, Arrival::Notification(Input::Drained(token))));
        };
        let timing = &self.nodes[nr].rules.timing;
        let longest = if work.cuttable { nanos(timing.stop_grace()) * 3 / 2 } else { nanos(timing.lease()) * 2 };
        let takes = 1 + self.dice.below(longest);
        self.after(takes, Event::Arrive(nr, life, Arrival::Returned(token)));
    }

    /// Drops cuttable work once its term is over by the clock.
    pub(super) fn cut_work(&mut self, nr: NodeNr, life: u32, token: Token) {
        let node = &self.nodes[nr];
        let over = node.term.as_ref().filter(|term| term.token == token).is_none() || node.current(self.now).is_none();
        let cuttable = node.work.iter().any(|work| work.token == token && work.cuttable);
        if node.life == life && over && cuttable {
            self.arrive(nr, life, Arrival::Returned(token));
        }
    }

    pub(super) fn work_returned(&mut self, nr: NodeNr, token: Token) {
        let node = &mut self.nodes[nr];
        let before = node.work.len();
        node.work.retain(|work| work.token != token);
        if node.work.len() < before {
            self.say(Some(nr), || format!("the work of term {token} has returned"));
            self.step(nr, Input::Drained(token));
        }
    }
}
