//! Whether this candidate is healthy enough to lead.

use super::Machine;
use crate::{Action, Bid, EndReason, Moment, Score};

/// The health of a candidate over time.
#[derive(Debug)]
pub(super) struct Fitness {
    /// Whether the candidate is healthy enough to lead. It is lost at once and regained only after a while, so
    /// that a candidate whose health flaps does not make the leadership flap.
    fit: bool,
    /// Since when an unfit candidate has been healthy again.
    healthy_since: Option<Moment>,
}

impl Fitness {
    pub(super) fn new() -> Self {
        Self { fit: true, healthy_since: None }
    }
}

impl Machine {
    pub(super) fn is_fit(&self) -> bool {
        self.fitness.fit
    }

    pub(super) fn on_health(&mut self, now: Moment, score: Score, out: &mut Vec<Action>) {
        if score >= self.rules.min_health {
            if !self.fitness.fit {
                self.fitness.healthy_since.get_or_insert(now);
            }
            return;
        }
        self.fitness.healthy_since = None;
        if std::mem::take(&mut self.fitness.fit) {
            out.push(Action::Fit(false));
            self.settle_bid(Bid::Taken, out);
        }
        if self.rules.step_down_when_unhealthy {
            self.end_on_request(now, EndReason::Unhealthy, out);
        }
    }

    /// Returns when the candidate counts as fit again, if its health stays good until then.
    pub(super) fn fit_again_at(&self) -> Option<Moment> {
        self.fitness.healthy_since.map(|since| since + self.rules.timing.recovery())
    }

    pub(super) fn recover_fitness(&mut self, now: Moment, out: &mut Vec<Action>) {
        if self.fit_again_at().is_some_and(|at| now >= at) {
            self.fitness = Fitness::new();
            self.precedence.unsettle(now);
            self.look_at = Some(now);
            out.push(Action::Fit(true));
        }
    }
}
