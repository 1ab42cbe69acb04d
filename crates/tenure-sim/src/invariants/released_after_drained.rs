//! The seat is released only after all work has returned.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::world::World;

pub(super) struct ReleasedAfterDrained;

impl Invariant for ReleasedAfterDrained {
    fn name(&self) -> &'static str {
        "released after drained"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let What::Acted(nr, Action::Swap { record, .. }) = what else { return Ok(()) };
        let node = &world.nodes[*nr];
        if record.is_vacant() && node.works(None) {
            return Err(format!("{} released the seat while its work still ran", node.me));
        }
        Ok(())
    }
}
