//! The store's clock is set.
//!
//! Guard: where the store's clock is vouched for, a step is at least two leases and a half later than the
//! last one in the other direction, as two opposite steps within two leases and two attempts are not
//! promised; and the clock never steps where it is said not to (`clock_trust=always`).

use crate::clock::nanos;
use crate::plan::Kind;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    if world.dice.chance(400) {
        return deceive(world);
    }
    // The most dangerous moment to set it forward is when a leader cannot renew, the best one to set it back is
    // before that.
    let cut_off = world.nodes.iter().any(|node| world.now < node.cut_off_until);
    let forward = world.dice.chance(if cut_off { 700 } else { 300 });
    step(world, forward)
}

/// Deceives a follower that goes by what it has read long ago: it is cut off while the clock is set back, and back again
/// just after the clock was set forward.
fn deceive(world: &mut World) -> bool {
    let (lease, now) = (nanos(world.plan.longest_lease()), world.now);
    if let Some(node) = world.nodes.iter().position(|node| now + lease < node.cut_off_until) {
        let is_set = step(world, true);
        if is_set {
            world.nodes[node].cut_off_until = now;
        }
        return is_set;
    }
    let node = usize::try_from(world.dice.below(world.nodes.len() as u64)).unwrap_or(0);
    if world.nodes[node].leads(now) || !step(world, false) {
        return false;
    }
    world.nodes[node].cut_off_until = now + lease * (4 + world.dice.below(4));
    world.say(Some(node), || "is cut off from the store for a few leases".into());
    true
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
