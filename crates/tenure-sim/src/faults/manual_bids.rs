//! Users of a manual election bid, release or yield the seat, and bid again at any time.

use tenure_protocol::Input;

use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = world.pick_node() else { return false };
    if !world.plan.parts[node].manual && !world.dice.chance(20) {
        return false;
    }
    if world.nodes[node].leads(world.now) {
        if world.dice.chance(500) {
            world.say(Some(node), || "its user releases the seat".into());
            world.input(node, Input::Release);
        } else {
            world.say(Some(node), || "its user yields the seat to others".into());
            world.input(node, Input::Yield);
        }
    } else {
        world.say(Some(node), || "its user asks for one bid".into());
        world.input(node, Input::Bid);
    }
    true
}
