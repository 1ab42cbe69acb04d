//! The store restarts under another identity, and may have lost its last writes.
//!
//! Guard: losing writes is a roll-back and guarded like one.

use super::roll_back;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let loses = world.dice.chance(500) && world.everyone_knows_the_seat();
    world.store.shelf_mut().identity += 1;
    world.say(None, || "the store restarts under another identity".into());
    if loses {
        roll_back::roll_back(world);
    }
    true
}
