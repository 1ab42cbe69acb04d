//! A node gets no notifications of writes for a while, without knowing it. Then it gets the current state, and
//! some earlier notifications again.

use crate::clock::nanos;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let node = world.dice.below(world.nodes.len() as u64) as usize;
    if !world.nodes[node].runs() {
        return false;
    }
    let lasts = world.dice.below(nanos(world.plan.longest_lease()) * 2);
    world.say(Some(node), || format!("gets no notifications of writes for {:.1} s", lasts as f64 / 1e9));
    world.cut_notifications(node, lasts);
    true
}
