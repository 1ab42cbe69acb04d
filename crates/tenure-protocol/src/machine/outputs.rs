//! What the machine reports: the leader, what to watch, when to wake.

use std::sync::Arc;

use super::{BoardRead, Kind, Machine, Stage, Watched};
use crate::observation::Free;
use crate::{Action, Bid, Crash, Leader, Moment, Stopped, Token};

/// The number of spurious notifications, each soon after the one before, that do not delay the next watch.
const HARMLESS: u32 = 4;

impl Machine {
    pub(super) fn stop(&mut self, out: &mut Vec<Action>) {
        self.settle_bid(Bid::Taken, out);
        if self.has_left() || !self.rules.held_by_session {
            self.stage = Stage::Stopped;
        }
        self.leaving = true;
    }

    pub(super) fn settle_bid(&mut self, bid: Bid, out: &mut Vec<Action>) {
        if std::mem::take(&mut self.bidding) {
            out.push(Action::BidSettled(bid));
        }
    }

    pub(super) fn want_board(&mut self) {
        match self.board {
            BoardRead::Unread => self.board = BoardRead::Wanted,
            BoardRead::Reading => self.board = BoardRead::ReadingAndWanted,
            BoardRead::Wanted | BoardRead::ReadingAndWanted => {}
        }
    }

    pub(super) fn report(&mut self, now: Moment, out: &mut Vec<Action>) {
        let leader = self.leader();
        let key = leader.as_ref().map(|leader| (leader.candidate.incarnation, leader.token));
        // To a candidate that leaves a claimed occasion, the claim says more than the leader.
        self.report_crash(out);
        if key != self.reported_leader && self.stopping != Some(Stopped::Claimed) {
            self.reported_leader = key;
            out.push(Action::Leader(leader));
        }
        if self.leaving && !std::mem::replace(&mut self.reported_stopped, true) {
            // Reported last, because no action for users follows it.
            out.extend(self.stopping.map(Action::Stopped));
        }
        if self.is_over() {
            return;
        }
        if self.board == BoardRead::Wanted && matches!(self.stage, Stage::Leading(_)) {
            self.board = BoardRead::Reading;
            out.push(Action::ReadBoard);
        }
        self.update_watch(now, out);
        let wake = self.next_wake(now);
        if wake != self.reported_wake {
            self.reported_wake = wake;
            out.extend(wake.map(Action::WakeAt));
        }
    }

    /// Reports a term that a last will has ended since the last report. A crash from before the first read is history.
    fn report_crash(&mut self, out: &mut Vec<Action>) {
        if !self.observation.has_looked() {
            return;
        }
        let crash = self.last_crash().cloned();
        let token = crash.as_ref().map_or(Token::ZERO, |crash| crash.token);
        if let Some(before) = self.reported_crash.replace(token)
            && token > before
        {
            out.extend(crash.map(Action::Crashed));
        }
    }

    /// Returns the last crash of a leader, according to the seat as last seen.
    pub(super) fn last_crash(&self) -> Option<&Arc<Crash>> {
        self.observation.seat()?.record.crash.as_ref()
    }

    pub(super) fn leader(&self) -> Option<Leader> {
        match &self.stage {
            Stage::Leading(hold) | Stage::Ending(hold, _) => Some(Leader {
                candidate: self.me.clone(),
                token: hold.token,
                since_ms: None,
                metadata: self.rules.metadata.clone(),
            }),
            Stage::Following if self.observation.free(&self.rules) != Free::Now => {
                let record = &self.observation.seat()?.record;
                Some(Leader {
                    candidate: record.holder.clone().filter(|holder| holder.incarnation != self.me.incarnation)?,
                    token: record.token,
                    since_ms: record.since_ms,
                    metadata: record.metadata.clone(),
                })
            }
            _ => None,
        }
    }

    /// Requests a watch that starts from the seat as last seen. A machine that is about to look requests none.
    pub(super) fn update_watch(&mut self, now: Moment, out: &mut Vec<Action>) {
        let looking = self.doubt
            || self.look_at.is_some_and(|at| now >= at)
            || self.call.as_ref().is_some_and(|call| matches!(call.kind, Kind::Read | Kind::Bid(_)))
            || self.board != BoardRead::Unread;
        if looking || !self.observation.has_looked() || self.leaving {
            return;
        }
        let seat = self.observation.seat();
        let watch = Watched {
            holder: seat.and_then(|seat| Some(seat.record.holder.as_ref()?.incarnation)),
            token: seat.map(|seat| seat.record.token),
            requests: matches!(self.stage, Stage::Leading(_)),
        };
        let is_new = self.watched.as_ref() != Some(&watch);
        if std::mem::take(&mut self.news) {
            self.spent = true;
            if !is_new {
                // The notification was spurious. A few are harmless: a hand-over on request causes one in the new leader,
                // and one hand-over can follow another at once. But if the machine started a new watch at once after
                // each, a store that keeps sending them would keep the machine busy.
                let pause = self.rules.timing.retry_every();
                self.spurious = if now < self.spurious_until { self.spurious.saturating_add(1) } else { 1 };
                if self.spurious > HARMLESS {
                    self.watch_at = now + self.dice.jitter(pause);
                }
                self.spurious_until = now + pause;
            }
        }
        // A change is watched at once: a term may just have begun on a session whose end must be noticed.
        if is_new || (self.spent && now >= self.watch_at) {
            out.push(Action::Watch { seat: seat.cloned(), requests: watch.requests });
            self.watched = Some(watch);
            self.spent = false;
        }
    }

    pub(super) fn next_wake(&self, now: Moment) -> Option<Moment> {
        let mut wakes = [None; 6];
        let may_call = self.call.is_none();
        match &self.stage {
            Stage::Leading(hold) => {
                wakes[0] = Some(hold.deadline - self.rules.timing.drain());
                wakes[1] = (may_call && self.is_kept()).then(|| self.renewal_due(hold));
                wakes[2] = self.look_at.filter(|_| may_call).map(|at| at.max(self.paused_until));
            }
            Stage::Ending(hold, end) => {
                wakes[0] = Some(end.by.min(hold.deadline));
                wakes[1] = (may_call && self.is_kept()).then(|| self.renewal_due(hold));
            }
            Stage::Following => {
                // A next look that is not decided yet, and a seat of our own to act on, are due when the pause
                // is over.
                let can_act = self.undrained.is_none()
                    && self.ours.as_ref().is_some_and(|ours| {
                        let waited_out = now >= self.observation.waited_out_at();
                        (waited_out && self.wants_to_stand()) || self.should_vacate(now, ours)
                    });
                let at = self.look_at.filter(|_| !can_act).unwrap_or(self.paused_until);
                wakes[0] = may_call.then(|| at.max(self.paused_until));
                let leaves = self.stopping.is_some() && self.undrained.is_none() && self.stop_deadline() > now;
                wakes[1] = leaves.then(|| self.stop_deadline());
            }
            Stage::Idle | Stage::Stopped => return None,
        }
        wakes[3] = self
            .undrained
            .filter(|undrained| !undrained.reported)
            .map(|undrained| undrained.since + self.rules.timing.overrun_slack());
        wakes[4] = (self.spent && self.watch_at > now).then_some(self.watch_at);
        wakes[5] = self.fit_again_at();
        wakes.into_iter().flatten().min()
    }
}
