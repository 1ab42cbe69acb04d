//! The leader is asked to step down: by its own user, or by a request on the board.

use tenure_protocol::{Input, Request};

use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let Some(node) = (0..world.nodes.len()).find(|&node| world.nodes[node].leads(world.now)) else { return false };
    if world.plan.has_board && world.dice.chance(700) {
        let Some(token) = world.nodes[node].term.as_ref().map(|term| term.token) else { return false };
        world.say(None, || format!("a request to step down from term {token} is put on the board"));
        world.put_request(Request::StepDown { token, to: None });
    } else {
        world.say(Some(node), || "is asked by its user to step down".into());
        world.input(node, Input::StepDown);
    }
    true
}
