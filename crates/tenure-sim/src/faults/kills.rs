//! A process is killed, and starts again later under the same id as another incarnation.
//!
//! Guard: not while the world waits for the end of a loss, because a candidate must remember what was lost.

use crate::clock::nanos;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = world.pick_node().filter(|_| world.lost.is_none()) else { return false };
    world.say(Some(node), || "is killed".into());
    world.leave_will(node);
    world.kill(node);
    let lease = nanos(world.plan.longest_lease());
    let pause = if world.dice.chance(500) { lease / 20 } else { lease * 2 };
    let pause = 1 + world.dice.below(pause);
    world.start_in(node, pause);
    true
}
