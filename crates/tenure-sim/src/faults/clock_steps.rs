//! The store's clock is set.
//!
//! Guard: where the store's clock is vouched for, a step is at least two leases and a half later than the
//! last one in the other direction, as two opposite steps within two leases and two attempts are not
//! promised; and the clock never steps where it is said not to (`judge=store`).

use crate::clock::nanos;
use crate::plan::Kind;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    // The most dangerous moment to set it forward is when a leader cannot renew, the best one to set it back is
    // before that.
    let cut_off = world.nodes.iter().any(|node| world.now < node.cut_off_until);
    let forward = world.dice.chance(if cut_off { 700 } else { 300 });
    step(world, forward)
}

/// Sets it, if that is promised to do no harm.
pub(crate) fn step(world: &mut World, forward: bool) -> bool {
    let lease = nanos(world.plan.longest_lease());
    let too_soon = world.last_step[usize::from(!forward)].is_some_and(|at| world.now < at + lease * 5 / 2);
    if too_soon && world.plan.kind == Kind::ClockVouched {
        return false;
    }
    world.last_step[usize::from(forward)] = Some(world.now);
    let by = i128::from(world.dice.below(lease * 2));
    let by = if forward { by } else { -by };
    world.store.step_clock(by);
    if !forward {
        world.trouble_all();
    }
    world.say(None, || format!("the store's clock is set by {:.1} s", by as f64 / 1e9));
    true
}
