//! A process pauses: stopped by its host, swapped out, or suspended. Its clock continues.

use crate::clock::nanos;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let lease = nanos(world.plan.longest_lease());
    let Some(node) = world.pick_node().filter(|&node| !world.nodes[node].paused) else { return false };
    let longest = if world.dice.chance(500) { lease / 3 } else { lease * 2 };
    let lasts = 1 + world.dice.below(longest);
    world.pause(node, lasts);
    true
}
