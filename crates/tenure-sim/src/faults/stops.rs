//! A candidate is stopped, and started again later.
//!
//! Guard: not while the world waits for the end of a loss, because a candidate must remember what was lost.

use tenure_protocol::Input;

use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = world.pick_node().filter(|_| world.lost.is_none()) else { return false };
    if world.nodes[node].asked_to_stop.is_some() {
        return false;
    }
    world.say(Some(node), || "is asked to stop".into());
    world.input(node, Input::Stop);
    true
}
