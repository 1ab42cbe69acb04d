//! Reads succeed, but all writes fail for a while: a full disk, a replica, revoked permissions, or a server
//! that blocks a key for some time after a session has ended.

use tenure_protocol::{Fault, Input, Swap};

use crate::clock::nanos;
use crate::world::World;

/// What all writes are answered with, without an effect.
const ANSWERS: [Result<Swap, Fault>; 3] = [Err(Fault::Refused), Err(Fault::Unknown), Ok(Swap::Lost)];

pub(crate) fn strike(world: &mut World) -> bool {
    let lasts = nanos(world.plan.longest_lease()) * (2 + world.dice.below(4));
    let answer = ANSWERS[world.dice.below(ANSWERS.len() as u64) as usize].clone();
    world.say(None, || format!("for {:.1} s, all writes are answered with {answer:?}", lasts as f64 / 1e9));
    world.writes_fail = Some((world.now + lasts, Input::Written(answer)));
    true
}
