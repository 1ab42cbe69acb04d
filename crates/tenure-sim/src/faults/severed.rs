//! A leader is cut off right after one of its writes was answered: it relies on its seat for as long as
//! possible, and receives nothing. At that moment its session is ended, the seat is lost, it is asked to stop,
//! or the store's clock is set forward.

use tenure_protocol::Input;

use crate::clock::nanos;
use crate::faults::FaultKind;
use crate::node::{Arrival, NodeNr};
use crate::world::{Event, World};

/// Called when a write of this node was answered.
pub(crate) fn after_write(world: &mut World, node: NodeNr) {
    let stormy = world.plan.faults.has(FaultKind::Severed) && world.now < world.plan.quiet_at;
    // The best moment is while another node reads the seat and does not see this write.
    let chance = if world.is_looked_at() { 300 } else { 40 };
    if !stormy || !world.dice.chance(chance) {
        return;
    }
    let lease = nanos(world.plan.longest_lease());
    let lasts = lease * 11 / 10 + world.dice.below(lease * 2);
    world.nodes[node].cut_off_until = world.now + lasts;
    world.count(FaultKind::Severed);
    world.say(Some(node), || format!("is cut off from the store for {:.1} s, right after a write", lasts as f64 / 1e9));
    let happens = |fault| world.plan.faults.has(fault);
    let (ends, deletes) = (happens(FaultKind::SessionsEnded), happens(FaultKind::Deletion));
    let (restarts, stops) = (happens(FaultKind::StoreRestart), happens(FaultKind::Stops));
    let steps = happens(FaultKind::ClockSteps);
    if ends && world.dice.chance(700) {
        super::sessions_ended::end(world, node);
    } else if deletes && world.dice.chance(700) {
        super::deletion::strike(world);
    } else if restarts && world.dice.chance(400) {
        super::store_restart::strike(world);
    }
    if stops && world.nodes[node].asked_to_stop.is_none() && world.lost.is_none() && world.dice.chance(500) {
        let life = world.nodes[node].life;
        world.nodes[node].asked_to_stop = Some(world.now);
        world.after(1, Event::Arrive(node, life, Arrival::Notification(Input::Stop)));
    }
    if steps && world.dice.chance(800) {
        // At once, or just before the node can reach the store again.
        let wait = if world.dice.chance(500) { 0 } else { lasts - world.dice.below(lease / 4) };
        world.after(wait, Event::ClockForward);
    }
}
