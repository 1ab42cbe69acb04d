//! Which candidates nothing keeps from the seat, and since when. Several invariants depend on it.

use tenure_protocol::Push;

use super::World;
use crate::clock::{Time, nanos};
use crate::faults::FaultKind;
use crate::node::NodeNr;

impl World {
    /// Returns since when nothing keeps this candidate from the seat, which may be a future time. Returns
    /// `None` while something does: it does not run or stand, is unhealthy, wraps up work, or cannot reach the
    /// store.
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

    /// Returns whether there are no faults, and the effects of earlier ones are over.
    pub(crate) fn is_calm(&self) -> bool {
        self.plan.weather.is_orderly() || self.now >= self.plan.quiet_at + nanos(self.plan.longest_lease()) * 2
    }

    /// Returns whether, without faults, this candidate looks at a free seat before the other candidates stop
    /// waiting for it: it gets a push, or it looks often enough.
    pub(crate) fn looks_in_time(&self, nr: NodeNr) -> bool {
        let lease = self.plan.parts[nr].lease;
        self.plan.push != Push::None || self.plan.parts.iter().all(|part| part.lease == lease)
    }

    /// Records that this candidate has just started or resumed, or that one of its calls failed. It needs a
    /// while to recover: it may pause, for longer while the store failed; its session may have ended, which it
    /// notices later; it may have missed a loss, which it must wait out.
    pub(crate) fn trouble(&mut self, nr: NodeNr) {
        // To a candidate, a clock that was set back looks like a renewal that was lost.
        let clock = self.plan.faults.has(FaultKind::ClockSteps);
        let losses = [FaultKind::Deletion, FaultKind::RollBack, FaultKind::StoreRestart];
        if clock || losses.iter().any(|&loss| self.plan.faults.has(loss)) {
            return self.hold_back(nr, nanos(self.plan.longest_lease()) * 23 / 10);
        }
        let lease = nanos(self.plan.parts[nr].lease);
        self.hold_back(nr, if self.plan.kind.has_sessions() { lease * 2 } else { lease / 2 });
    }

    /// Records a loss of data: each candidate sees it with its next look, and waits it out.
    pub(crate) fn trouble_all(&mut self) {
        (0..self.nodes.len()).for_each(|nr| self.trouble(nr));
    }

    /// Records that a term of this candidate is over. It may have to step aside for two leases.
    pub(super) fn record_term_end(&mut self, nr: NodeNr) {
        self.hold_back(nr, nanos(self.plan.parts[nr].lease) * 21 / 10);
    }

    fn hold_back(&mut self, nr: NodeNr, lasts: Time) {
        let node = &mut self.nodes[nr];
        node.untroubled_at = node.untroubled_at.max(self.now + lasts);
    }
}
