//! Whether this candidate is well enough to lead.

use super::Machine;
use crate::{Action, Bid, EndReason, Moment, Score};

/// What a candidate has said of its health.
#[derive(Debug)]
pub(super) struct Fitness {
    /// Whether it is well enough to lead. Lost at once, and regained only after a while: a candidate
    /// that is well every other moment must not lead every other moment.
    fit: bool,
    /// Since when it has been well again.
    well_since: Option<Moment>,
}

impl Fitness {
    pub(super) fn new() -> Self {
        Self { fit: true, well_since: None }
    }
}

impl Machine {
    pub(super) fn is_fit(&self) -> bool {
        self.fitness.fit
    }

    pub(super) fn on_health(&mut self, now: Moment, score: Score, out: &mut Vec<Action>) {
        if score >= self.rules.min_health {
            if !self.fitness.fit {
                self.fitness.well_since.get_or_insert(now);
            }
            return;
        }
        self.fitness.well_since = None;
        if std::mem::take(&mut self.fitness.fit) {
            out.push(Action::Fit(false));
            self.settle_bid(Bid::Taken, out);
        }
        if self.rules.step_down_when_unhealthy {
            self.end_on_request(now, EndReason::Unhealthy, out);
        }
    }

    /// When it counts as well again, if nothing happens until then.
    pub(super) fn fit_again_at(&self) -> Option<Moment> {
        self.fitness.well_since.map(|since| since + self.rules.timing.recovery())
    }

    pub(super) fn let_recover(&mut self, now: Moment, out: &mut Vec<Action>) {
        if self.fit_again_at().is_some_and(|at| now >= at) {
            self.fitness = Fitness::new();
            self.turn.unsettle(now);
            self.look_at = Some(now);
            out.push(Action::Fit(true));
        }
    }
}
