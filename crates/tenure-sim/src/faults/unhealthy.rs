//! A candidate is unhealthy for a while, and reports that several times before and after it recovers.

use tenure_protocol::Score;

use super::unhealthy_score;
use crate::clock::nanos;
use crate::world::{Event, World};

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = world.pick_node() else { return false };
    let (life, lease) = (world.nodes[node].life, nanos(world.plan.longest_lease()));
    let score = unhealthy_score(&mut world.dice);
    let lasts = 1 + world.dice.below(lease * 2);
    let every = lease / 20 + world.dice.below(lease);
    world.say(Some(node), || format!("is unhealthy for {:.1} s", lasts as f64 / 1e9));
    for report in 0..=lasts / every {
        world.after(report * every, Event::Report(node, life, score));
    }
    for report in 0..3 {
        world.after(lasts + report * every, Event::Report(node, life, Score::FULL));
    }
    true
}
