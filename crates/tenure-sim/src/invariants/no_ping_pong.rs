//! Leadership is not tossed about.
//!
//! - A candidate asks a leader to make room only if that leader's priority is lower than its own, and only
//!   after it has been there, well, without a term and without a failed call for two of its leases.
//! - A leader makes room only for a higher priority, so that each such hand-over to its heir goes up: there
//!   are fewer in a row than there are priorities.
//! - Room is made for a candidate only two of its leases after its last term, at the earliest.
//! - A candidate's health ends its terms at most once a lease: it is not well again before that.

use tenure_protocol::{Action, Candidate, EndReason, Input, Moment, Request};

use super::hand_overs::HandOvers;
use super::{Invariant, What};
use crate::node::NodeNr;
use crate::world::World;

pub(super) struct NoPingPong {
    hand_overs: HandOvers,
    /// Since when nothing speaks against each node, at the earliest.
    settled_since: Vec<Moment>,
    /// When each node last ended a term.
    ended: Vec<Option<Moment>>,
    /// When a term of each node's last ended for its health.
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
                    return Err(format!("{} asks the leader to make room, and has hardly come round", node.me));
                }
                let kept = world.store.shelf().past.iter().chain(&world.store.shelf().seat);
                let asked = kept.filter(|kept| kept.record.token == *token && kept.holder().is_some());
                if asked.map(|kept| kept.record.priority).min().is_some_and(|its| its >= *priority) {
                    return Err(format!("{} asks a leader of no lower priority to make room", node.me));
                }
            }
            Action::Ending { token, why: EndReason::Unhealthy, .. } => {
                let before = self.unhealthy[nr].replace(now);
                if before.is_some_and(|before| now < before + lease) {
                    return Err(format!("{} was well enough for term {token} within a lease", node.me));
                }
            }
            Action::Ending { token, why: EndReason::SteppedDown, .. } => {
                match hand_over.map(|(_, hand_over)| hand_over) {
                    None => return Err(format!("{} hands over term {token} though nobody may ask for it", node.me)),
                    Some(hand_over) if hand_over.preempts => return self.room_is_made(world, hand_over.heir.as_ref()),
                    Some(_) => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl NoPingPong {
    fn room_is_made(&self, world: &World, heir: Option<&Candidate>) -> Result<(), String> {
        let Some(nr) = world.nodes.iter().position(|node| Some(&node.me) == heir) else { return Ok(()) };
        let node = &world.nodes[nr];
        let (now, settled) = (node.clock.read(world.now), node.rules.timing.settled());
        if self.ended[nr].is_some_and(|ended| now < ended + settled) {
            return Err(format!("room is made for {} within two leases of its last term", node.me));
        }
        Ok(())
    }
}

/// Whether a candidate that takes this in has to come round first.
fn unsettles(world: &World, nr: NodeNr, input: &Input) -> bool {
    match input {
        Input::Start | Input::Read(Err(_)) | Input::Written(Err(_)) => true,
        Input::Health(score) => *score < world.nodes[nr].rules.min_health,
        _ => false,
    }
}
