//! The health of a candidate changes again and again. Some of the healthy intervals are shorter than the time
//! that it takes to count as fit again, some are longer.

use tenure_protocol::Score;

use super::unhealthy_score;
use crate::clock::nanos;
use crate::world::{Event, World};

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = world.pick_node() else { return false };
    let (life, lease) = (world.nodes[node].life, nanos(world.plan.longest_lease()));
    let longest = if world.dice.chance(600) { lease / 5 } else { lease * 5 / 4 };
    world.say(Some(node), || "starts to flap between healthy and unhealthy".into());
    let mut at = 0;
    for _ in 0..3 + world.dice.below(6) {
        let low = unhealthy_score(&mut world.dice);
        world.after(at, Event::Report(node, life, low));
        at += 1 + world.dice.below(longest);
        world.after(at, Event::Report(node, life, Score::FULL));
        at += 1 + world.dice.below(longest);
    }
    true
}
