//! A node is cut off from the store for a while: its calls are lost, while its hold continues.

use crate::clock::nanos;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let lease = nanos(world.plan.longest_lease());
    // Usually the leader, because a partition of a follower has little effect.
    let Some(node) = world.pick_node() else { return false };
    let lasts = lease / 10 + world.dice.below(lease * 2);
    world.nodes[node].cut_off_until = world.now + lasts;
    world.say(Some(node), || format!("is cut off from the store for {:.1} s", lasts as f64 / 1e9));
    true
}
