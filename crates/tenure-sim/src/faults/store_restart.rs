//! The store restarts under another identity, and may have lost its last writes.
//!
//! Guard: a restart loses writes only where a roll-back may, or if the new identity reveals the loss. That is the
//! case if every running candidate has seen the old identity, a lost term cannot last longer than each candidate
//! waits, and the store has a floor that keeps lost tokens from being reused.

use super::roll_back;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let loses = world.dice.chance(600) && (world.everyone_knows_the_seat() || gives_itself_away(world));
    world.store.shelf_mut().identity += 1;
    world.say(None, || "the store restarts under another identity".into());
    world.trouble_all();
    if loses {
        roll_back::roll_back(world);
        world.lose_roster();
    }
    true
}

fn gives_itself_away(world: &World) -> bool {
    let (shelf, lease) = (world.store.shelf(), world.plan.longest_lease());
    world.lost.is_none()
        && shelf.has_floor()
        && world.plan.parts.iter().all(|part| part.lease == lease)
        && world.nodes.iter().all(|node| !node.runs() || node.identity == shelf.identity)
}
