//! A node hears nothing of what is written for a while, and does not know. Then it lists what is there, and is
//! told again of some that it has heard before.

use crate::clock::nanos;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let node = world.dice.below(world.nodes.len() as u64) as usize;
    if !world.nodes[node].runs() {
        return false;
    }
    let lasts = world.dice.below(nanos(world.plan.longest_lease()) * 2);
    world.say(Some(node), || format!("hears of no write for {:.1} s", lasts as f64 / 1e9));
    world.cut_ears(node, lasts);
    true
}
