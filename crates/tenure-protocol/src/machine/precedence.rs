//! Whose turn it is when the seat is free: the named heir's, or that of the highest priority.
//!
//! This is courtesy, not safety: the others leave the seat alone for a while, each from its own first
//! look at the vacancy and once for each, so that a heir that is gone costs no more than that.

use super::{Machine, Stage};
use crate::observation::Free;
use crate::{Action, Candidate, Moment, Record, Request, Standing, Token};

/// What a candidate knows of whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    vacancy: Option<Vacancy>,
    /// Since when nothing speaks against this candidate: it is well and the store answers.
    settled_since: Moment,
    /// How many bids have failed in a row: a seat that is given up for this candidate may stay empty.
    pub(super) failed_bids: u32,
    /// When something was last asked of the leader.
    asked_at: Option<Moment>,
    /// Whom the seat goes to when this term's is given up.
    pub(super) heir: Option<Box<(Token, Candidate)>>,
    /// There are candidates of different priorities.
    ranked: bool,
    /// The seat does not say so yet: the next renewal writes the record anew.
    pub(super) rewrite: bool,
}

/// A free seat.
#[derive(Debug)]
struct Vacancy {
    /// The number of the term that was last, and whether it was given up; `None`: there was none.
    after: Option<(Token, bool)>,
    /// When it was first seen.
    since: Moment,
    first: First,
}

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    NotAsked,
    Asked,
    Anyone,
    Another,
}

impl Turn {
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
    /// Whether nobody else goes first for the seat, which is free.
    pub(super) fn is_my_turn(&mut self, now: Moment, out: &mut Vec<Action>) -> bool {
        let seat = self.observation.seat();
        let after = seat.map(|seat| last_term(&seat.record));
        let (since, first) = match &self.turn.vacancy {
            Some(vacancy) if vacancy.after == after => (vacancy.since, vacancy.first),
            _ => (now, First::NotAsked),
        };
        let record = seat.map(|seat| &seat.record);
        let heir = record.filter(|record| record.is_vacant()).and_then(|record| record.heir.as_ref());
        let first = match heir {
            Some(heir) if heir.incarnation == self.me.incarnation => First::Anyone,
            Some(_) => First::Another,
            // Priorities are for those who stand by themselves: nobody else is on the roster.
            None if !self.rules.stands || !self.is_ranked(record) => First::Anyone,
            None => first,
        };
        let over = now >= since + self.rules.timing.head_start();
        let ask = first == First::NotAsked && !over;
        if ask {
            out.push(Action::ReadRoster);
        }
        let first = if ask { First::Asked } else { first };
        self.turn.vacancy = Some(Vacancy { after, since, first });
        over || first == First::Anyone
    }

    /// When the seat is everybody's, if it is left to another now.
    pub(super) fn free_for_all_at(&self) -> Option<Moment> {
        let after = self.observation.seat().map(|seat| last_term(&seat.record));
        let vacancy = self.turn.vacancy.as_ref().filter(|vacancy| vacancy.after == after)?;
        (vacancy.first != First::Anyone).then(|| vacancy.since + self.rules.timing.head_start())
    }

    pub(super) fn on_roster(&mut self, now: Moment, roster: &[Standing]) {
        let Some(vacancy) = self.turn.vacancy.as_mut().filter(|vacancy| vacancy.first == First::Asked) else { return };
        // Whoever led last has died or stepped aside.
        let last = self.observation.last_holder();
        let goes_first = |standing: &Standing| {
            let who = standing.candidate.incarnation;
            standing.fit && standing.priority > self.rules.priority && who != self.me.incarnation && Some(who) != last
        };
        vacancy.first = if roster.iter().any(goes_first) { First::Another } else { First::Anyone };
        self.look_at = Some(now);
    }

    fn is_ranked(&self, record: Option<&Record>) -> bool {
        self.rules.priority != 0 || record.is_some_and(|record| record.ranked)
    }

    /// What the seat is to say of priorities.
    pub(super) fn says_ranked(&self) -> bool {
        self.turn.ranked || self.is_ranked(self.observation.seat().map(|seat| &seat.record))
    }

    /// Asks of the leader what there is to ask. After a look at the seat.
    pub(super) fn ask_leader(&mut self, now: Moment, out: &mut Vec<Action>) {
        let asked_lately = self.turn.asked_at.is_some_and(|at| now < at + self.rules.timing.lease());
        if asked_lately || self.rules.priority == 0 || !self.rules.stands || !self.wants_to_stand() {
            return;
        }
        let Some(seat) = self.observation.seat().filter(|_| self.observation.free(&self.rules) != Free::Now) else {
            return;
        };
        let Record { token, priority, ranked, .. } = seat.record;
        // Each bid that fails doubles the wait, so that one who cannot write does not unseat leaders all the time.
        let wait = self.rules.timing.settled().saturating_mul(1 << self.turn.failed_bids.min(6));
        let settled = now >= self.turn.settled_since + wait;
        let request = if self.rules.preempt && settled && priority < self.rules.priority {
            Request::Preempt { token, by: self.me.clone(), priority: self.rules.priority }
        } else if !ranked {
            Request::Rank { token }
        } else {
            return;
        };
        self.turn.asked_at = Some(now);
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
                self.turn.rewrite |= !std::mem::replace(&mut self.turn.ranked, true);
            }
        }
    }

    /// Hands over, if it leads: to this candidate, or to whoever takes it.
    pub(super) fn hand_over(&mut self, now: Moment, heir: Option<Candidate>, out: &mut Vec<Action>) {
        if heir.as_ref().is_some_and(|heir| heir.incarnation == self.me.incarnation) {
            return;
        }
        if let Stage::Leading(hold) = &self.stage {
            self.turn.heir = heir.map(|heir| Box::new((hold.token, heir)));
        }
        self.end_on_request(now, crate::EndReason::SteppedDown, out);
    }
}

/// What tells one vacancy from another: a seat that has lapsed may still be given up, to an heir.
fn last_term(record: &Record) -> (Token, bool) {
    (record.token, record.is_vacant())
}
