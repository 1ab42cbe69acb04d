//! The seat is deleted.
//!
//! Guard: only a record that every running candidate has seen is deleted, and no candidate starts until the
//! loss is over (see [`World::everyone_knows_the_seat`] and [`World::may_start`]). A candidate that never saw
//! the lost term cannot know of it, so nothing is promised about that. Some bids from before the deletion never
//! land (see `World::is_held_back`).

use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    if !world.everyone_knows_the_seat() {
        return false;
    }
    let Some(kept) = world.store.shelf_mut().seat.take() else { return false };
    world.lose(kept.record.token);
    world.store.shelf_mut().past.push(kept);
    world.say(None, || "the seat is deleted".into());
    world.holder_changed();
    true
}
