//! What the answers of the store mean for the machine.

use super::{Call, Hold, Kind, Machine, Ours, Stage};
use crate::observation::Free;
use crate::{Action, Bid, EndReason, Fault, Life, Moment, Push, Reading, Record, Seat, Stopped, Swap, Version};

impl Machine {
    pub(super) fn on_read(&mut self, now: Moment, answer: Result<Reading, Fault>, out: &mut Vec<Action>) -> bool {
        let Some(Call { kind: Kind::Read, sent }) = self.call.take() else {
            unreachable!("a reading came in that was not asked for");
        };
        let reading = match answer {
            Ok(reading) => reading,
            Err(fault) => {
                self.on_fault(now, fault, out);
                self.pause(now, sent);
                self.settle_bid(Bid::Failed(fault), out);
                // If every call is denied, or if this candidate does not write again soon, the next read that
                // succeeds shows that the store works. Otherwise only a write shows that: a store that refuses
                // writes may refuse a few reads as well, and the pauses must go on growing.
                let writes_again = self.wants_to_stand() || self.observation.is_held_by_us();
                self.writes_fail &= writes_again && fault != Fault::Denied;
                self.look_at = Some(now);
                return false;
            }
        };
        self.doubt = false;
        let lost_renewal = std::mem::take(&mut self.lost_renewal);
        self.look_at = None;
        let is_first = !self.observation.has_looked();
        if self.observation.read(sent, now, reading, &self.rules.timing) || is_first {
            // Terms may have come and gone unseen, so no token that this candidate tried before is safe to use.
            // Nor is a token that the first reading shows: if the seat names this candidate, an earlier
            // election of this process wrote it, and may have led with it.
            self.used = self.used.max(self.observation.highest_token());
        }
        // A successful read shows nothing about writes, unless it shows that the writes of another candidate
        // succeed.
        if self.failing != Some(Fault::Denied) && self.leader().is_some_and(|leader| leader.candidate != self.me) {
            self.writes_fail = false;
        }
        if !self.writes_fail {
            self.on_answer(out);
        }
        let is_anothers = !self.observation.is_as_bid_for() && !self.observation.is_held_by_us();
        if !self.holds() && is_anothers {
            // Another candidate won the race for the seat, which is not a fault.
            (self.setbacks, self.pause_due) = (0, false);
        }
        if self.pause_due {
            self.pause(now, self.wrote_at);
            if !self.holds() {
                // Only a fresh read allows a bid.
                self.look_at = Some(now);
            }
        }
        let seat = self.observation.seat();
        if let (Some(held), Some(seat)) = (&mut self.held_back, seat)
            && seat.record.token > held.after
        {
            if seat.record.is_held_by(self.me.incarnation) {
                // A late bid of this candidate has landed. No other candidate has led yet.
                held.after = seat.record.token;
            } else {
                self.held_back = None;
            }
        }
        match &mut self.stage {
            Stage::Leading(hold) | Stage::Ending(hold, _) => match seat {
                Some(seat) if seat.record.is_held_by(self.me.incarnation) && seat.record.token == hold.token => {
                    // The renewal was lost to an earlier renewal of this candidate that had landed.
                    self.by_version |= lost_renewal && seat.version != hold.version;
                    // A reading never extends the hold. It only shows which version to renew.
                    hold.version = seat.version.clone();
                    if seat.life == Life::Over {
                        self.end_at_once(now, EndReason::SessionOver, out);
                    }
                }
                Some(_) => self.end_at_once(now, EndReason::SeatLost, out),
                // A candidate that never saw this term may bid at once, so the term must end at once.
                None => self.end_at_once(now, EndReason::SeatVanished, out),
            },
            Stage::Following => {
                self.ours = seat.filter(|seat| seat.record.is_held_by(self.me.incarnation)).map(|seat| Ours {
                    token: seat.record.token,
                    version: seat.version.clone(),
                    over: seat.life == Life::Over,
                    let_go: false,
                });
            }
            Stage::Idle | Stage::Stopped => {}
        }
        true
    }

    pub(super) fn on_written(&mut self, now: Moment, answer: Result<Swap, Fault>, out: &mut Vec<Action>) {
        let Some(Call { kind, sent }) = self.call.take() else {
            unreachable!("an answer came in to a write that was not asked for");
        };
        match answer {
            Ok(Swap::Done { version, since, granted }) => {
                self.on_write_answered(out);
                self.setbacks = 0;
                self.precedence.failed_bids = 0;
                if matches!(kind, Kind::Bid(_) | Kind::Renew(_, true)) {
                    self.precedence.rewrite = false;
                }
                let lease = granted.map_or(self.rules.timing.lease(), |granted| granted.min(self.rules.timing.lease()));
                // The hold counts from the send of the write, or from the send of the heartbeat that the seat
                // rests on.
                let since = since.map_or(sent, |since| since.min(sent));
                let deadline = since + self.rules.timing.hold_of(lease);
                match kind {
                    Kind::Bid(record) | Kind::Renew(record, _) => {
                        self.on_kept(now, *record, version, since, deadline, out);
                    }
                    Kind::Vacate(record) => {
                        self.ours = None;
                        self.look_at = (self.bidding || self.wants_to_stand()).then_some(now);
                        self.observation.wrote(now, Seat { record: *record, version, life: Life::Observe });
                    }
                    Kind::Read => unreachable!("a read was answered as a write"),
                }
            }
            Ok(Swap::Lost) => {
                self.on_write_answered(out);
                self.on_setback(now);
                self.lost_renewal = matches!(kind, Kind::Renew(_, false));
                if let Kind::Renew(record, _) = &kind
                    && !self.holds()
                {
                    // If the seat still names this candidate, it cannot be kept: the machine bids above it.
                    self.used = self.used.max(record.token);
                }
                if matches!(kind, Kind::Bid(_)) {
                    out.push(Action::BidLost);
                    self.settle_bid(Bid::Taken, out);
                }
            }
            // Renewing again is safe, and faster than reading the seat first: if the seat has another holder,
            // the next renewal is lost, and then the machine reads the seat. Where the store matches renewals
            // by version, the next renewal would be lost to this one if this one landed, so there the machine
            // reads the seat first.
            Err(Fault::Unknown) if matches!(kind, Kind::Renew(..)) && self.holds() && !self.by_version => {
                self.on_write_fault(now, Fault::Unknown, out);
                self.pause(now, sent);
            }
            Err(Fault::Unknown) => {
                if matches!(kind, Kind::Bid(_)) {
                    self.precedence.failed_bids = self.precedence.failed_bids.saturating_add(1);
                }
                self.on_setback(now);
                self.on_write_fault(now, Fault::Unknown, out);
            }
            Err(fault) => {
                self.on_write_fault(now, fault, out);
                self.pause(now, sent);
                self.settle_bid(Bid::Failed(fault), out);
                if matches!(kind, Kind::Bid(_)) {
                    self.precedence.failed_bids = self.precedence.failed_bids.saturating_add(1);
                    self.look_at = Some(now);
                }
            }
        }
    }

    /// Requires a read before anything else, because a write was lost or may have been.
    pub(super) fn on_setback(&mut self, now: Moment) {
        self.doubt = true;
        self.ours = None;
        self.look_at = Some(now);
        self.setbacks += 1;
        // The seat may name this candidate, so the read comes at once and the pause after it.
        self.pause_due = self.setbacks > 1;
    }

    /// Records that the seat still names this candidate and term. The hold counts from `since`.
    pub(super) fn on_kept(
        &mut self,
        now: Moment,
        record: Record,
        version: Version,
        since: Moment,
        deadline: Moment,
        out: &mut Vec<Action>,
    ) {
        let token = record.token;
        let renew_at = self.renew_at(since, !self.holds());
        self.observation.wrote(now, Seat { record, version: version.clone(), life: Life::Observe });
        match &mut self.stage {
            Stage::Leading(hold) if hold.token == token => {
                *hold = Hold { token, version, deadline, renew_at, kept_at: now };
                out.push(Action::Extended { token, until: deadline });
                if self.push() != Push::Proven {
                    self.want_board();
                }
            }
            Stage::Ending(hold, end) if hold.token == token => {
                hold.version = version;
                // A late renewal neither revives a term nor prolongs one that time is ending.
                if end.why.is_voluntary() {
                    (hold.deadline, hold.renew_at, hold.kept_at) = (deadline, renew_at, now);
                    out.push(Action::Extended { token, until: deadline.min(end.by) });
                }
            }
            _ => {
                self.ours = None;
                if token > self.used && self.wants_to_stand() && deadline > now + self.rules.timing.drain() {
                    self.begin(Hold { token, version, deadline, renew_at, kept_at: now }, out);
                } else {
                    // Won on a session that is about to end, or no longer wanted, or won a second time after
                    // its term was over. `proceed` decides what to do with the seat.
                    if token > self.used {
                        self.pause(now, now);
                    }
                    self.ours = Some(Ours { token, version, over: false, let_go: false });
                }
            }
        }
    }

    pub(super) fn on_write_fault(&mut self, now: Moment, fault: Fault, out: &mut Vec<Action>) {
        self.writes_fail = true;
        self.on_fault(now, fault, out);
    }

    pub(super) fn on_fault(&mut self, now: Moment, fault: Fault, out: &mut Vec<Action>) {
        self.precedence.unsettle(now);
        self.faults = self.faults.saturating_add(1);
        let after = now.since(*self.failing_since.get_or_insert(now));
        if self.rules.timing.give_up_after().is_some_and(|longest| after >= longest) && !self.holds() {
            self.stopping.get_or_insert(Stopped::GaveUp { after });
        }
        if self.failing != Some(fault) {
            self.failing = Some(fault);
            out.push(Action::Failing(fault));
        }
    }

    fn on_write_answered(&mut self, out: &mut Vec<Action>) {
        self.writes_fail = false;
        self.on_answer(out);
    }

    fn on_answer(&mut self, out: &mut Vec<Action>) {
        (self.faults, self.failing_since) = (0, None);
        if self.failing.take().is_some() {
            out.push(Action::Recovered);
        }
    }

    /// Delays the next call, because of a call that was sent at `sent`.
    ///
    /// The holder of a seat has no time to lose: it waits for a random time from that send, so a call that
    /// timed out has usually waited long enough. A follower backs off: it waits longer and longer while the
    /// store fails or its bids are lost, but never past the moment at which the seat may become free.
    pub(super) fn pause(&mut self, now: Moment, sent: Moment) {
        let timing = &self.rules.timing;
        if self.holds() {
            self.paused_until = now.max(sent + self.dice.jitter(timing.retry_every()));
            self.pause_due = false;
            return;
        }
        let longest = if self.failing == Some(Fault::Denied) {
            timing.retry_max()
        } else {
            let doublings = self.faults.max(self.setbacks).saturating_sub(1).min(16);
            timing.retry_every().saturating_mul(1 << doublings).min(timing.retry_max())
        };
        let mut until = now + self.dice.jitter(longest);
        if let Free::At(free) = self.observation.free(&self.rules)
            && free > now
        {
            until = until.min(free);
        }
        self.paused_until = until;
        self.pause_due = false;
    }
}
