//! The roster lists the candidates that stand, with their current health, and no others; and this costs little.
//!
//! - Three leases after its last change, and after the end of all faults, a candidate that stands is on the
//!   roster with its latest notice, and a candidate that does not stand is not. (If the store has lost all
//!   notes, and the answer that showed this was lost, too, it takes until the notice is written again: half of
//!   its lifetime.)
//! - The note of a process lasts at most two leases, so dead processes are not listed for longer.
//! - A notice is written once for each reason: it is new, it has changed, it could not be written, the store
//!   said that it has lost the notes, or half of its lifetime is over.
//! - A process reports itself once per lease, and once more for each report that failed.

use super::{Invariant, What};
use crate::clock::nanos;
use crate::world::World;

pub(super) struct RosterIsTrue;

const TEN_MINUTES: u64 = 600_000_000_000;

impl Invariant for RosterIsTrue {
    fn name(&self) -> &'static str {
        "the roster is true"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let lease = nanos(world.plan.longest_lease());
        if world.latest_presence().is_some_and(|until| until > world.now + lease * 2) {
            return Err("the note of a process lasts longer than two leases".into());
        }
        for node in &world.nodes {
            let announcer = &node.announcer;
            // Clocks may run a little faster than true time.
            let age = announcer.began.map_or(0, |began| (world.now - began) * 21 / 20);
            let own_lease = nanos(node.rules.timing.lease());
            let reasons =
                u64::from(announcer.reasons + announcer.failures) + age / (own_lease * 4).max(TEN_MINUTES) * 2;
            if u64::from(announcer.puts) > reasons + 1 {
                return Err(format!("{} has written {} notices for {reasons} reasons", node.me, announcer.puts));
            }
            let leases = age / own_lease;
            if u64::from(announcer.reports) > 2 + leases + 2 * u64::from(announcer.failures + announcer.reasons) {
                return Err(format!("{} reported itself {} times within {leases} leases", node.me, announcer.reports));
            }
        }
        if !matches!(what, What::Finished) {
            return Ok(());
        }
        for (nr, node) in world.nodes.iter().enumerate() {
            let (says, since) = node.announcer.says;
            if !world.announces(nr)
                || node.announcer.lost
                || !node.lives()
                || world.now < since.max(world.plan.quiet_at) + lease * 3
            {
                continue;
            }
            let listed = world.listed().find(|listing| listing.standing.candidate == node.me);
            if listed.map(|listing| listing.standing.fit) != says {
                return Err(format!("{} is listed as {listed:?}, but its notice says {says:?}", node.me));
            }
        }
        Ok(())
    }
}
