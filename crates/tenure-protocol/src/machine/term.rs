//! How a term begins and ends.

use super::{Board, End, HeldBack, Hold, Machine, Ours, Stage, Undrained};
use crate::{Action, Bid, EndReason, Moment, Token};

impl Machine {
    pub(super) fn begin(&mut self, hold: Hold, out: &mut Vec<Action>) {
        let (token, until) = (hold.token, hold.deadline);
        self.led = token;
        self.used = self.used.max(token);
        self.look_at = None;
        self.board = Board::Unread;
        self.stage = Stage::Leading(hold);
        out.push(Action::Began { token, until });
        self.settle_bid(Bid::Won(token), out);
    }

    /// The end that a user or another candidate has asked for: the seat is kept while work wraps up.
    pub(super) fn end_on_request(&mut self, now: Moment, why: EndReason, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Leading(_) => self.end(why, now + self.rules.timing.stop_grace(), out),
            Stage::Ending(hold, _) if why == EndReason::SteppedDown => {
                self.held_back = Some(self.hold_back(now, hold.token))
            }
            _ => {}
        }
    }

    /// The end that another has brought about: there is no time left to wrap up in.
    pub(super) fn end_at_once(&mut self, now: Moment, why: EndReason, out: &mut Vec<Action>) {
        match &mut self.stage {
            Stage::Leading(_) => self.end(why, now, out),
            Stage::Ending(hold, end) => {
                // Who was asked to step down steps aside, whatever else happens meanwhile.
                let steps_aside = (end.why == EndReason::SteppedDown).then_some(hold.token);
                *end = End { why, by: now };
                self.held_back = steps_aside.map(|token| self.hold_back(now, token)).or(self.held_back);
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
        self.turn.unsettle(now);
        if !drained {
            self.undrained = Some(Undrained { token: hold.token, since: now, told: false });
        }
        if why == EndReason::SteppedDown {
            self.held_back = Some(self.hold_back(now, hold.token));
        }
        if self.board == Board::SeatInterest {
            self.board = Board::Unread;
        }
        // What is certain about the seat can be acted on at once; otherwise we look first.
        if why.is_voluntary() && !self.doubt {
            self.ours = Some(Ours { token: hold.token, version: hold.version, over: false, let_go: true });
        } else {
            // The seat may still name us, or name us again.
            self.doubt = true;
            self.look_at = Some(now);
        }
        out.push(Action::Ended { token: hold.token, why });
    }

    pub(super) fn hold_back(&self, now: Moment, token: Token) -> HeldBack {
        HeldBack { until: now + self.rules.timing.lease() * 2, after: token }
    }
}
