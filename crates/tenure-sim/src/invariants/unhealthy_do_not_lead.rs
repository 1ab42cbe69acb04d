//! An unhealthy candidate does not lead: it makes no bid and begins no term. If it leads and
//! `step_down_when_unhealthy` is set, its term is over when its work has had its grace (`stop_grace`), counted
//! from when its report was processed, on its own clock.
//!
//! A candidate is fit until a report falls below its `min_health`, and again once it has been healthy for a
//! lease without a bad report. This file computes that from its reports alone.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::world::World;

pub(super) struct UnhealthyDoNotLead;

impl Invariant for UnhealthyDoNotLead {
    fn name(&self) -> &'static str {
        "unhealthy candidates do not lead"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, action) => {
                let node = &world.nodes[nr];
                let stands = match action {
                    Action::Began { .. } => true,
                    Action::Swap { record, .. } | Action::Renew { record, .. } => {
                        !record.is_vacant() && node.term.is_none()
                    }
                    _ => false,
                };
                if stands && !node.health.is_fit(node.clock.read(world.now), &node.rules) {
                    return Err(format!("{} stands although it is unhealthy: {action:?}", node.me));
                }
            }
            What::Moved | What::Resumed => {
                for node in world.nodes.iter().filter(|node| node.rules.step_down_when_unhealthy) {
                    let now = node.clock.read(world.now);
                    let Some(term) = node.current(world.now).filter(|_| !node.health.is_fit(now, &node.rules)) else {
                        continue;
                    };
                    let grace = node.rules.timing.stop_grace();
                    if node.health.unfit_since().is_some_and(|since| now > since + grace) {
                        return Err(format!("{} is unhealthy and still leads term {}", node.me, term.token));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
