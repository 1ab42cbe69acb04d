//! What users of an election do at any time: bid, let go, bid again.

use tenure_protocol::Input;

use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = world.pick_node() else { return false };
    if !world.plan.parts[node].manual && !world.dice.chance(20) {
        return false;
    }
    if world.nodes[node].leads(world.now) {
        world.say(Some(node), || "its user lets go of the seat".into());
        world.tell(node, Input::Release);
    } else {
        world.say(Some(node), || "its user asks for one bid".into());
        world.tell(node, Input::Bid);
    }
    true
}
