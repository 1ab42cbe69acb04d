//! Leadership does not move back and forth.
//!
//! - A candidate asks a leader to step down only if the leader's priority is lower than its own, and only after
//!   it has been running, healthy, without a term and without a failed call for two of its leases.
//! - A leader steps down only for a higher priority, so each such hand-over to its heir goes up: there are
//!   fewer in a row than there are priorities.
//! - A leader steps down for a candidate at the earliest two of that candidate's leases after its last term.
//! - A candidate's health ends its terms at most once per lease, because it does not become fit again before
//!   that.

use tenure_protocol::{Action, Candidate, EndReason, Input, Moment, Request};

use super::hand_overs::HandOvers;
use super::{Invariant, What};
use crate::node::NodeNr;
use crate::world::World;

pub(super) struct NoPingPong {
    hand_overs: HandOvers,
    /// The earliest time since which each node can count as settled.
    settled_since: Vec<Moment>,
    /// When each node last ended a term.
    ended: Vec<Option<Moment>>,
    /// When a term of each node last ended because of its health.
    unhealthy: Vec<Option<Moment>>,
}

impl NoPingPong {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            hand_overs: HandOvers::new(nodes),
            settled_since: vec![Moment::ORIGIN; nodes],
            ended: vec![None; nodes],
            unhealthy: vec![None; nodes],
        }
    }
}

impl Invariant for NoPingPong {
    fn name(&self) -> &'static str {
        "no ping-pong"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let hand_over = self.hand_overs.begun(world, what);
        let (nr, action) = match *what {
            What::TakesIn(nr, input) => {
                if unsettles(world, nr, input) {
                    self.settled_since[nr] = world.nodes[nr].clock.read(world.now);
                }
                return Ok(());
            }
            What::Gone(nr) => {
                (self.unhealthy[nr], self.ended[nr]) = (None, None);
                return Ok(());
            }
            What::Acted(nr, action) => (nr, action),
            _ => return Ok(()),
        };
        let node = &world.nodes[nr];
        let (now, lease) = (node.clock.read(world.now), node.rules.timing.lease());
        match action {
            Action::Ended { .. } => (self.settled_since[nr], self.ended[nr]) = (now, Some(now)),
            Action::Ask(Request::Preempt { token, priority, .. }) => {
                if now < self.settled_since[nr] + lease * 2 {
                    return Err(format!("{} asks the leader to step down, but has not settled yet", node.me));
                }
                let kept = world.store.shelf().past.iter().chain(&world.store.shelf().seat);
                let asked = kept.filter(|kept| kept.record.token == *token && kept.holder().is_some());
                if asked.map(|kept| kept.record.priority).min().is_some_and(|its| its >= *priority) {
                    return Err(format!("{} asks a leader of no lower priority to step down", node.me));
                }
            }
            Action::Ending { token, why: EndReason::Unhealthy, .. } => {
                let before = self.unhealthy[nr].replace(now);
                if before.is_some_and(|before| now < before + lease) {
                    return Err(format!("{} became fit for term {token} within a lease", node.me));
                }
            }
            Action::Ending { token, why: EndReason::SteppedDown, .. } => {
                match hand_over.map(|(_, hand_over)| hand_over) {
                    None => return Err(format!("{} hands over term {token} without a valid request", node.me)),
                    Some(hand_over) if hand_over.preempts => {
                        return self.check_preemption(world, hand_over.heir.as_ref());
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl NoPingPong {
    fn check_preemption(&self, world: &World, heir: Option<&Candidate>) -> Result<(), String> {
        let Some(nr) = world.nodes.iter().position(|node| Some(&node.me) == heir) else { return Ok(()) };
        let node = &world.nodes[nr];
        let (now, settled) = (node.clock.read(world.now), node.rules.timing.settled());
        if self.ended[nr].is_some_and(|ended| now < ended + settled) {
            return Err(format!("a leader steps down for {} within two leases of its last term", node.me));
        }
        Ok(())
    }
}

/// Returns whether this input makes a candidate unsettled.
fn unsettles(world: &World, nr: NodeNr, input: &Input) -> bool {
    match input {
        Input::Start | Input::Read(Err(_)) | Input::Written(Err(_)) => true,
        Input::Health(score) => *score < world.nodes[nr].rules.min_health,
        _ => false,
    }
}
