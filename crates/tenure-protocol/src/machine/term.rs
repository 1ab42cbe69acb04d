//! How a term begins and ends.

use super::{BoardRead, End, HeldBack, Hold, Machine, Ours, Stage, Undrained};
use crate::{Action, Bid, EndReason, Moment, Token};

impl Machine {
    pub(super) fn begin(&mut self, hold: Hold, out: &mut Vec<Action>) {
        let (token, until) = (hold.token, hold.deadline);
        self.led = token;
        self.used = self.used.max(token);
        self.look_at = None;
        self.board = BoardRead::Unread;
        self.stage = Stage::Leading(hold);
        out.push(Action::Began { token, until });
        self.settle_bid(Bid::Won(token), out);
    }

    /// Ends the term because a user or another candidate asked for it. The candidate keeps the seat while work
    /// wraps up.
    pub(super) fn end_on_request(&mut self, now: Moment, why: EndReason, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Leading(_) => self.end(why, now + self.rules.timing.stop_grace(), out),
            Stage::Ending(hold, _) if why == EndReason::SteppedDown => {
                self.held_back = self.hold_back(now, hold.token, why);
            }
            _ => {}
        }
    }

    /// Ends the term at once, because the seat or its session is lost. No time is left for work to wrap up.
    pub(super) fn end_at_once(&mut self, now: Moment, why: EndReason, out: &mut Vec<Action>) {
        match &mut self.stage {
            Stage::Leading(_) => self.end(why, now, out),
            Stage::Ending(hold, end) => {
                // A candidate that was asked to step aside does so, whatever else happens meanwhile.
                let (token, asked) = (hold.token, end.why);
                *end = End { why, by: now };
                self.held_back = self.hold_back(now, token, asked).or(self.held_back);
            }
            _ => {}
        }
    }

    pub(super) fn end(&mut self, why: EndReason, by: Moment, out: &mut Vec<Action>) {
        let Stage::Leading(hold) = &self.stage else { return };
        let hold = hold.clone();
        out.push(Action::Ending { token: hold.token, why, by: by.min(hold.deadline) });
        self.stage = Stage::Ending(hold, End { why, by });
    }

    pub(super) fn finish(&mut self, now: Moment, drained: bool, out: &mut Vec<Action>) {
        let Stage::Ending(hold, end) = &self.stage else { return };
        let (hold, why) = (hold.clone(), end.why);
        self.stage = Stage::Following;
        self.precedence.unsettle(now);
        if !drained {
            self.undrained = Some(Undrained { token: hold.token, since: now, reported: false });
        }
        self.held_back = self.hold_back(now, hold.token, why).or(self.held_back);
        if self.board == BoardRead::Wanted {
            self.board = BoardRead::Unread;
        }
        // What is certain about the seat is acted on at once. Otherwise the machine reads the seat first.
        if why.is_voluntary() && !self.doubt {
            self.ours = Some(Ours { token: hold.token, version: hold.version, over: false, let_go: true });
        } else {
            // The seat may still name this candidate, or name it again.
            self.doubt = true;
            self.look_at = Some(now);
        }
        out.push(Action::Ended { token: hold.token, why });
    }

    /// How long others go first after an end for this reason.
    fn hold_back(&self, now: Moment, token: Token, why: EndReason) -> Option<HeldBack> {
        let span = match why {
            EndReason::SteppedDown => self.rules.timing.lease() * 2,
            // Every candidate that looks for the seat has found it free by then.
            EndReason::Yielded => self.rules.timing.head_start(),
            _ => return None,
        };
        Some(HeldBack { until: now + span, after: token })
    }
}
