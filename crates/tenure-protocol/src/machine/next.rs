//! What to do next, decided only from what the machine knows.

use super::{Call, Hold, Kind, Machine, Ours, Stage};
use crate::observation::Free;
use crate::{Action, Bid, Fault, Moment, Push, Record, Stopped, Token, Version};

/// The number of times per interval at which renewals and looks are due. Many elections spread over these
/// times, and elections with the same time share a call if the store supports batches.
const STEPS: u32 = 20;

impl Machine {
    pub(super) fn proceed(&mut self, now: Moment, looked: bool, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Following => self.proceed_following(now, looked, out),
            Stage::Leading(hold) | Stage::Ending(hold, _) if self.call.is_none() && now >= self.paused_until => {
                let renews = self.is_kept();
                if renews && !self.doubt && now >= self.renewal_due(hold) {
                    let (token, version) = (hold.token, hold.version.clone());
                    self.renew(now, token, version, out);
                } else if (renews || !self.is_ending()) && (self.doubt || self.look_at.is_some_and(|at| now >= at)) {
                    self.read(now, out);
                }
            }
            Stage::Idle if self.stopping.is_some() => self.stop(out),
            _ => {}
        }
    }

    pub(super) fn proceed_following(&mut self, now: Moment, looked: bool, out: &mut Vec<Action>) {
        // Claims are never withdrawn, so an old look is as good as a new one.
        if self.stopping.is_none() && self.is_claimed() {
            self.stopping = Some(Stopped::Claimed);
            self.leaving_since = now;
        }
        if self.may_stop(now) {
            self.stop(out);
            if self.is_over() {
                return;
            }
        }
        if self.call.is_some() || now < self.paused_until {
            return;
        }
        if let Some(ours) = self.ours.clone().filter(|_| self.undrained.is_none()) {
            if self.should_vacate(now, &ours) {
                return self.vacate(now, &ours, out);
            }
            if self.wants_to_stand() && now >= self.observation.waited_out_at() {
                if ours.token > self.used && !ours.over {
                    return self.renew(now, ours.token, ours.version, out);
                }
                return self.bid(now, out);
            }
        } else if looked
            && self.wants_to_stand()
            && now >= self.observation.waited_out_at()
            && self.observation.free(&self.rules) == Free::Now
            && self.is_my_turn(now, out)
        {
            return self.bid(now, out);
        }
        if looked {
            self.settle_bid(Bid::Taken, out);
            self.ask_leader(now, out);
        }
        let look_at = match self.look_at {
            Some(at) => at,
            None => self.next_look(now),
        };
        self.look_at = Some(look_at);
        if self.doubt || now >= look_at {
            self.read(now, out);
        }
    }

    /// Returns when a follower looks at the seat again: when the seat may be free, and at regular intervals,
    /// because pushes can be lost.
    pub(super) fn next_look(&mut self, now: Moment) -> Moment {
        let timing = &self.rules.timing;
        let usual = if self.push() == Push::Proven { timing.lease() } else { timing.lease() / 3 };
        let every = timing.poll_every().unwrap_or(usual);
        // Each interval is shortened by a random amount, so that many followers do not look at the same time.
        let mut at = (now + every - self.dice.jitter(every / 10)).in_step(every / STEPS).max(now);
        if let Free::At(free) = self.observation.free(&self.rules) {
            at = at.min(free);
        }
        let obstacles =
            [Some(self.observation.waited_out_at()), self.held_back.map(|held| held.until), self.free_for_all_at()];
        for obstacle in obstacles.into_iter().flatten() {
            if obstacle > now {
                at = at.min(obstacle);
            }
        }
        at
    }

    /// Returns how far the store's pushes are reliable at present.
    pub(super) fn push(&self) -> Push {
        if self.push_down { Push::None } else { self.rules.push }
    }

    /// Returns whether the candidate would take the seat if it were free.
    pub(super) fn wants_to_stand(&self) -> bool {
        (self.rules.stands || self.bidding) && self.may_stand()
    }

    /// Returns whether nothing prevents the candidate from leading.
    pub(super) fn may_stand(&self) -> bool {
        self.stopping.is_none() && self.undrained.is_none() && self.held_back.is_none() && self.is_fit()
    }

    /// Returns whether the stop can be reported: the seat no longer names this candidate, or its users have
    /// waited long enough.
    pub(super) fn may_stop(&self, now: Moment) -> bool {
        match self.stopping {
            None => false,
            Some(_) if self.undrained.is_some() => false,
            Some(Stopped::GaveUp { .. }) => true,
            Some(Stopped::Asked | Stopped::Claimed) => {
                self.has_left()
                    || now >= self.stop_deadline()
                    || (!self.rules.release_on_stop && !self.write_in_flight())
            }
        }
    }

    /// Returns whether the seat is known not to name this candidate.
    pub(super) fn has_left(&self) -> bool {
        !self.observation.is_held_by_us() && self.ours.is_none() && !self.doubt && !self.write_in_flight()
    }

    fn write_in_flight(&self) -> bool {
        self.call.as_ref().is_some_and(|call| !matches!(call.kind, Kind::Read))
    }

    /// Returns whether to release a seat that names this candidate without a term. A bid that landed in a seat
    /// that went backwards is not released at first: to other candidates, the release would look like the end
    /// of the leader that was lost.
    pub(super) fn should_vacate(&self, now: Moment, ours: &Ours) -> bool {
        let unwanted = ours.let_go || !self.wants_to_stand();
        // The seat is left to lapse. If a live session holds it, it does not lapse, and is released at the
        // deadline instead.
        let lapses = self.stopping.is_some() && !self.rules.release_on_stop && now < self.stop_deadline();
        unwanted && !lapses && (ours.token <= self.led || now >= self.observation.waited_out_at())
    }

    /// Returns when a stop is reported even if the seat may name this candidate. By then, everything that it
    /// may have written has lapsed, unless a session holds it.
    pub(super) fn stop_deadline(&self) -> Moment {
        self.wrote_at.max(self.leaving_since) + self.rules.timing.lease()
    }

    /// Returns whether the candidate has a term, even one that is ending.
    pub(super) fn holds(&self) -> bool {
        matches!(self.stage, Stage::Leading(_) | Stage::Ending(..))
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Ending(..))
    }

    /// Returns whether to renew the seat: also while work wraps up, if the end is voluntary.
    pub(super) fn is_kept(&self) -> bool {
        match &self.stage {
            Stage::Leading(_) => true,
            Stage::Ending(_, end) => end.why.is_voluntary(),
            _ => false,
        }
    }

    /// Returns when to renew a seat whose hold counts from `since`.
    pub(super) fn renew_at(&mut self, since: Moment, first: bool) -> Moment {
        let every = self.rules.timing.renew_every();
        match self.rules.spread {
            true if first => (since + self.dice.jitter(every)).in_step(every / STEPS),
            true => (since + every).in_step(every / STEPS),
            false => since + every,
        }
    }

    pub(super) fn renewal_due(&self, hold: &Hold) -> Moment {
        let due = hold.renew_at.max(hold.kept_at + self.rules.timing.retry_every());
        if self.precedence.rewrite { self.paused_until } else { due.max(self.paused_until) }
    }

    pub(super) fn read(&mut self, now: Moment, out: &mut Vec<Action>) {
        self.call = Some(Call { kind: Kind::Read, sent: now });
        out.push(Action::Read);
    }

    pub(super) fn bid(&mut self, now: Moment, out: &mut Vec<Action>) {
        let Some((token, begins_anew)) = self.observation.next_token() else {
            // The highest token is taken. No candidate can lead until an operator removes the seat.
            self.on_write_fault(now, Fault::Denied, out);
            self.pause(now, now);
            self.look_at = Some(now);
            return self.settle_bid(Bid::Failed(Fault::Denied), out);
        };
        if begins_anew {
            (self.used, self.led, self.claims.first_bid) = (Token::ZERO, Token::ZERO, None);
        }
        self.claims.first_bid.get_or_insert(token);
        let record = self.record(token, true);
        self.ours = None;
        self.wrote_at = now;
        self.call = Some(Call { kind: Kind::Bid(Box::new(record.clone())), sent: now });
        let expected = self.observation.seat().map(|seat| seat.version.clone());
        out.push(Action::Swap { expected, record });
    }

    pub(super) fn renew(&mut self, now: Moment, token: Token, held: Version, out: &mut Vec<Action>) {
        let record = self.record(token, true);
        self.wrote_at = now;
        let rewrite = self.precedence.rewrite;
        self.call = Some(Call { kind: Kind::Renew(Box::new(record.clone()), rewrite), sent: now });
        out.push(if rewrite { Action::Swap { expected: Some(held), record } } else { Action::Renew { held, record } });
    }

    pub(super) fn vacate(&mut self, now: Moment, ours: &Ours, out: &mut Vec<Action>) {
        // If the outcome of this write stays unknown, it may land at any later time. So no term begins with
        // this token any more.
        self.used = self.used.max(ours.token);
        let record = self.record(ours.token, false);
        self.call = Some(Call { kind: Kind::Vacate(Box::new(record.clone())), sent: now });
        out.push(Action::Swap { expected: Some(ours.version.clone()), record });
    }

    pub(super) fn record(&mut self, token: Token, held: bool) -> Record {
        // The heir belongs to one term. The seat of a later term, or of an earlier one that came back, has
        // none.
        let heir =
            self.precedence.heir.as_deref().filter(|(of, _)| *of == token && !held).map(|(_, heir)| heir.clone());
        Record {
            holder: held.then(|| self.me.clone()),
            token,
            lease: self.rules.timing.lease(),
            since_ms: None,
            heir,
            priority: if held { self.rules.priority } else { 0 },
            ranked: self.says_ranked(),
            metadata: if held { self.rules.metadata.clone() } else { Default::default() },
            nonce: self.dice.roll(),
            claim: self.claim(token, held),
            crash: self.last_crash().cloned(),
            unknown: self.observation.seat().map(|seat| seat.record.unknown.clone()).unwrap_or_default(),
        }
    }
}
