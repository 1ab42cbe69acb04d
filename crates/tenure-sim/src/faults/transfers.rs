//! The leader is asked to hand over: by its own user, or by a request on the board. The heir may be alive,
//! unhealthy, gone, unknown, or the leader itself, and two heirs may be named at once. Sometimes a candidate
//! whose priority is not higher than the leader's asks it to step down.

use tenure_protocol::{Candidate, Incarnation, Input, Request, Token};

use crate::node::NodeNr;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(leader) = (0..world.nodes.len()).find(|&node| world.nodes[node].leads(world.now)) else { return false };
    let Some(token) = world.nodes[leader].term.as_ref().map(|term| term.token) else { return false };
    let times = if world.dice.chance(150) { 2 } else { 1 };
    for _ in 0..times {
        let heir = heir(world, leader);
        if world.plan.has_board && world.dice.chance(500) {
            ask(world, leader, token, heir);
        } else {
            world.say(Some(leader), || format!("is asked by its user to hand over to {heir}"));
            world.input(leader, Input::Transfer(heir));
        }
    }
    true
}

fn ask(world: &mut World, leader: NodeNr, token: Token, heir: Candidate) {
    let request = if world.dice.chance(100) {
        let priority = world.plan.parts[leader].priority.saturating_sub(world.dice.below(2) as i32);
        Request::Preempt { token, by: heir, priority }
    } else {
        Request::StepDown { token, to: Some(heir) }
    };
    world.say(None, || format!("{request:?} is put on the board"));
    world.put_request(request);
}

/// Picks any candidate, in half of the cases one that could lead.
fn heir(world: &mut World, leader: NodeNr) -> Candidate {
    if world.dice.chance(50) {
        return Candidate { id: "nobody".into(), incarnation: Incarnation::from_bits(u128::from(world.dice.roll())) };
    }
    let any = world.dice.below(world.nodes.len() as u64) as usize;
    let able = (0..world.nodes.len()).map(|step| (any + step) % world.nodes.len()).find(|&node| {
        let able = world.able_since(node).is_some_and(|since| since <= world.now);
        able && node != leader
    });
    let node = able.filter(|_| world.dice.chance(500)).unwrap_or(any);
    world.nodes[node].me.clone()
}
