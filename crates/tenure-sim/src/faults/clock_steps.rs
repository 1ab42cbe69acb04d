//! The store's clock is set.
//!
//! Guard: within one seed always in the same direction, as two opposite steps within a few readings
//! are not promised; and never where the store's clock is said not to step (`judge=store`).

use crate::clock::nanos;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    let by = i128::from(world.dice.below(nanos(world.plan.longest_lease()) * 2));
    let by = if world.plan.steps_forward { by } else { -by };
    world.store.step_clock(by);
    if !world.plan.steps_forward {
        world.trouble_all();
    }
    world.say(None, || format!("the store's clock is set by {:.1} s", by as f64 / 1e9));
    true
}
