//! The seat is set back to an earlier record.
//!
//! Guard: as for a deletion. Also, the seat is not set back to a record of an election that has ended while its
//! process keeps the session, because that process does not look at the seat any more.

use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    if !world.everyone_knows_the_seat() {
        return false;
    }
    roll_back(world)
}

pub(super) fn roll_back(world: &mut World) -> bool {
    let Some(token) = world.store.shelf().seat.as_ref().map(|kept| kept.record.token) else { return false };
    let past = &world.store.shelf().past;
    // The most dangerous record is the one that a lost bid was to replace.
    let worst = (1..=past.len().min(12)).find(|depth| world.a_stray_fits(&past[past.len() - depth].version));
    let depth = 1 + world.dice.below(6) as usize;
    let depth = worst.filter(|_| world.dice.chance(900)).unwrap_or(depth);
    let shelf = world.store.shelf_mut();
    let depth = depth.min(shelf.past.len());
    if depth == 0 {
        return false;
    }
    let left = shelf.past.len() - depth;
    let holder = shelf.past[left].holder();
    if world.nodes.iter().any(|node| node.resting && Some(node.me.incarnation) == holder) {
        return false;
    }
    let shelf = world.store.shelf_mut();
    let lost = shelf.past.split_off(left);
    shelf.seat = lost.into_iter().next();
    shelf.set_back += 1;
    world.lose(token);
    world.say(None, || format!("the seat is set back by {depth} writes"));
    world.holder_changed();
    true
}
