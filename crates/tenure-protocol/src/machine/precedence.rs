//! Which candidate goes first when the seat is free: the named heir, or the one with the highest priority.
//!
//! This is a courtesy and not needed for safety: the other candidates leave the seat alone for a limited time.
//! Each of them counts that time from its own first look at the vacancy, and only once per vacancy, so an heir
//! that is gone delays the next leader by no more than that.

use super::{Machine, Stage};
use crate::observation::Free;
use crate::{Action, Candidate, Moment, Record, Request, RosterEntry, Token};

/// What a candidate knows about which candidate goes first.
#[derive(Debug)]
pub(super) struct Precedence {
    vacancy: Option<Vacancy>,
    /// Since when this candidate has been healthy and the store has answered.
    settled_since: Moment,
    /// How many bids have failed in a row. A leader that hands over to this candidate would leave the seat
    /// empty.
    pub(super) failed_bids: u32,
    /// When this candidate last sent a request to the leader.
    asked_at: Option<Moment>,
    /// The heir that the release of a term names, and the token of that term.
    pub(super) heir: Option<Box<(Token, Candidate)>>,
    /// The candidates have different priorities.
    ranked: bool,
    /// The seat is not marked as ranked yet, so the next renewal rewrites the record.
    pub(super) rewrite: bool,
}

/// A free seat.
#[derive(Debug)]
struct Vacancy {
    /// The token of the last term, and whether it was released. `None`: there was no term.
    after: Option<(Token, bool)>,
    /// When this candidate first saw the vacancy.
    since: Moment,
    first: First,
}

/// Which candidate goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    NotAsked,
    Asked,
    Anyone,
    Another,
}

impl Precedence {
    pub(super) fn new() -> Self {
        Self {
            vacancy: None,
            settled_since: Moment::ORIGIN,
            failed_bids: 0,
            asked_at: None,
            heir: None,
            ranked: false,
            rewrite: false,
        }
    }

    pub(super) fn unsettle(&mut self, now: Moment) {
        self.settled_since = now;
    }
}

impl Machine {
    /// Returns whether no other candidate goes first for the seat, which must be free.
    pub(super) fn is_my_turn(&mut self, now: Moment, out: &mut Vec<Action>) -> bool {
        let seat = self.observation.seat();
        let after = seat.map(|seat| last_term(&seat.record));
        let (since, first) = match &self.precedence.vacancy {
            Some(vacancy) if vacancy.after == after => (vacancy.since, vacancy.first),
            _ => (now, First::NotAsked),
        };
        let record = seat.map(|seat| &seat.record);
        let heir = record.filter(|record| record.is_vacant()).and_then(|record| record.heir.as_ref());
        let first = match heir {
            Some(heir) if heir.incarnation == self.me.incarnation => First::Anyone,
            Some(_) => First::Another,
            // Priorities apply only to candidates that stand on their own, as only those are on the roster.
            None if !self.rules.stands || !self.is_ranked(record) => First::Anyone,
            None => first,
        };
        let over = now >= since + self.rules.timing.head_start();
        let ask = first == First::NotAsked && !over;
        if ask {
            out.push(Action::ReadRoster);
        }
        let first = if ask { First::Asked } else { first };
        self.precedence.vacancy = Some(Vacancy { after, since, first });
        over || first == First::Anyone
    }

    /// Returns when the seat becomes free for every candidate, if it is left to another candidate now.
    pub(super) fn free_for_all_at(&self) -> Option<Moment> {
        let after = self.observation.seat().map(|seat| last_term(&seat.record));
        let vacancy = self.precedence.vacancy.as_ref().filter(|vacancy| vacancy.after == after)?;
        (vacancy.first != First::Anyone).then(|| vacancy.since + self.rules.timing.head_start())
    }

    pub(super) fn on_roster(&mut self, now: Moment, roster: &[RosterEntry]) {
        let Some(vacancy) = self.precedence.vacancy.as_mut().filter(|vacancy| vacancy.first == First::Asked) else {
            return;
        };
        // The last holder has died or stepped aside, so it does not go first.
        let last = self.observation.last_holder();
        let goes_first = |entry: &RosterEntry| {
            let who = entry.candidate.incarnation;
            entry.fit && entry.priority > self.rules.priority && who != self.me.incarnation && Some(who) != last
        };
        vacancy.first = if roster.iter().any(goes_first) { First::Another } else { First::Anyone };
        self.look_at = Some(now);
    }

    fn is_ranked(&self, record: Option<&Record>) -> bool {
        self.rules.priority != 0 || record.is_some_and(|record| record.ranked)
    }

    /// Returns whether the record to write says that the candidates have different priorities.
    pub(super) fn says_ranked(&self) -> bool {
        self.precedence.ranked || self.is_ranked(self.observation.seat().map(|seat| &seat.record))
    }

    /// Sends the leader a request if one is due. Called after a read of the seat.
    pub(super) fn ask_leader(&mut self, now: Moment, out: &mut Vec<Action>) {
        let asked_lately = self.precedence.asked_at.is_some_and(|at| now < at + self.rules.timing.lease());
        if asked_lately || self.rules.priority == 0 || !self.rules.stands || !self.wants_to_stand() {
            return;
        }
        let Some(seat) = self.observation.seat().filter(|_| self.observation.free(&self.rules) != Free::Now) else {
            return;
        };
        let Record { token, priority, ranked, .. } = seat.record;
        // Each failed bid doubles the wait, so that a candidate that cannot write does not unseat one leader
        // after another.
        let wait = self.rules.timing.settled().saturating_mul(1 << self.precedence.failed_bids.min(6));
        let settled = now >= self.precedence.settled_since + wait;
        let request = if self.rules.preempt && settled && priority < self.rules.priority {
            Request::Preempt { token, by: self.me.clone(), priority: self.rules.priority }
        } else if !ranked {
            Request::Rank { token }
        } else {
            return;
        };
        self.precedence.asked_at = Some(now);
        out.push(Action::Ask(request));
    }

    pub(super) fn on_request(&mut self, now: Moment, request: Request, out: &mut Vec<Action>) {
        if self.term(now) != Some(request.token()) {
            return;
        }
        match request {
            Request::StepDown { to, .. } => self.hand_over(now, to, out),
            Request::Preempt { by, priority, .. } if priority > self.rules.priority => {
                self.hand_over(now, Some(by), out);
            }
            Request::Preempt { .. } => {}
            Request::Rank { .. } => {
                self.precedence.rewrite |= !std::mem::replace(&mut self.precedence.ranked, true);
            }
        }
    }

    /// Hands over the term, if there is one: to `heir`, or to any candidate.
    pub(super) fn hand_over(&mut self, now: Moment, heir: Option<Candidate>, out: &mut Vec<Action>) {
        if heir.as_ref().is_some_and(|heir| heir.incarnation == self.me.incarnation) {
            return;
        }
        if let Stage::Leading(hold) = &self.stage {
            self.precedence.heir = heir.map(|heir| Box::new((hold.token, heir)));
        }
        self.end_on_request(now, crate::EndReason::SteppedDown, out);
    }
}

/// Returns what tells one vacancy from another. A seat that has lapsed may still be released later, to an heir.
fn last_term(record: &Record) -> (Token, bool) {
    (record.token, record.is_vacant())
}
