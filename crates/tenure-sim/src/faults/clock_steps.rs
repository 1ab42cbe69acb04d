//! The store's clock is set.
//!
//! Guard: if candidates vouch for the store's clock, a step comes at least two and a half leases after the last
//! one in the other direction, because nothing is promised about two opposite steps within two leases and two
//! calls. A clock that always counts (`clock_trust=always`) is never set.

use crate::clock::nanos;
use crate::plan::Kind;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    if world.dice.chance(400) {
        return deceive(world);
    }
    // It is most dangerous to set the clock forward while a leader cannot renew, and to set it back before that.
    let cut_off = world.nodes.iter().any(|node| world.now < node.cut_off_until);
    let forward = world.dice.chance(if cut_off { 700 } else { 300 });
    step(world, forward)
}

/// Deceives a follower that relies on an old reading: it is cut off while the clock is set back, and connected
/// again just after the clock was set forward.
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

/// Sets the clock, if the promises cover it.
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
