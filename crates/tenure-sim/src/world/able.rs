//! Whom nothing keeps from the seat, and since when: what can be said of a free seat depends on it.

use tenure_protocol::Push;

use super::World;
use crate::clock::{Time, nanos};
use crate::faults::FaultKind;
use crate::node::NodeNr;

impl World {
    /// Since when nothing keeps this candidate from the seat; it may be some time from now. `None` while
    /// something does: it does not run or stand, is unwell, wraps up, or cannot reach the store.
    pub(crate) fn able_since(&self, nr: NodeNr) -> Option<Time> {
        let node = &self.nodes[nr];
        let able = node.runs()
            && !node.paused
            && node.rules.stands
            && node.asked_to_stop.is_none()
            && node.term.is_none()
            && !node.works(None)
            && self.now >= node.cut_off_until
            && node.health.is_fit(node.clock.read(self.now), &node.rules);
        let fit_since = node.health.fit_since(&node.rules).map_or(0, |moment| node.clock.when(moment));
        able.then(|| node.untroubled_at.max(fit_since))
    }

    /// Whether nothing goes wrong, and what did has come round.
    pub(crate) fn is_calm(&self) -> bool {
        self.plan.weather.is_orderly() || self.now >= self.plan.quiet_at + nanos(self.plan.longest_lease()) * 2
    }

    /// Whether this candidate looks at a seat that has become free before the others stop leaving it to it,
    /// in calm: it is told by a push, or it looks often enough.
    pub(crate) fn looks_in_time(&self, nr: NodeNr) -> bool {
        let lease = self.plan.parts[nr].lease;
        self.plan.push != Push::None || self.plan.parts.iter().all(|part| part.lease == lease)
    }

    /// This candidate has just started or gone on, or a call of its own went wrong. It takes a while to
    /// come round: a pause, which has grown while the store failed; its session may be over, and it notices
    /// later; it may have missed a loss, which it waits out.
    pub(crate) fn trouble(&mut self, nr: NodeNr) {
        // A clock that was set back cannot be told from a renewal that was lost.
        let clock = self.plan.faults.has(FaultKind::ClockSteps);
        let losses = [FaultKind::Deletion, FaultKind::RollBack, FaultKind::StoreRestart];
        if clock || losses.iter().any(|&loss| self.plan.faults.has(loss)) {
            return self.keep_back(nr, nanos(self.plan.longest_lease()) * 23 / 10);
        }
        let lease = nanos(self.plan.parts[nr].lease);
        self.keep_back(nr, if self.plan.kind.has_sessions() { lease * 2 } else { lease / 2 });
    }

    /// Something was lost: each sees it at its next look, and waits it out.
    pub(crate) fn trouble_all(&mut self) {
        (0..self.nodes.len()).for_each(|nr| self.trouble(nr));
    }

    /// Its term is over, and it may have to step aside for two leases.
    pub(super) fn stand_back(&mut self, nr: NodeNr) {
        self.keep_back(nr, nanos(self.plan.parts[nr].lease) * 21 / 10);
    }

    fn keep_back(&mut self, nr: NodeNr, lasts: Time) {
        let node = &mut self.nodes[nr];
        node.untroubled_at = node.untroubled_at.max(self.now + lasts);
    }
}
