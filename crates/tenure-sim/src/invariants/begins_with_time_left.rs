//! A term that begins has more than its drain left: otherwise work would start only to be asked to stop.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::world::World;

pub(super) struct BeginsWithTimeLeft;

impl Invariant for BeginsWithTimeLeft {
    fn name(&self) -> &'static str {
        "a term begins with time left"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let What::Acted(nr, Action::Began { token, until }) = what else { return Ok(()) };
        let node = &world.nodes[*nr];
        let left = until.since(node.clock.read(world.now));
        if left <= node.rules.timing.drain() {
            return Err(format!("{} began term {token} with {left:?} left", node.me));
        }
        Ok(())
    }
}
