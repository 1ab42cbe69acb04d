//! Who stands is listed, as well as it is, and nobody else; and that costs little.
//!
//! - Three leases after the last change, and after everything has fallen quiet, a candidate that stands is on the
//!   roster, with what it said last, and one that does not stand is not. (If the store has lost everything, and its
//!   answer that said so was lost, too, it takes until the notice is put again: half of its lifetime.)
//! - No process is said to be there for longer than two leases: the dead are not listed for longer.
//! - A notice is put once for each reason: it is new, it has changed, it could not be put, the store said that it has
//!   lost it, or half of its lifetime is over.
//! - A process says once a lease that it is there; once more for each time that failed.

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
            return Err("a process is said to be there for longer than two leases".into());
        }
        for node in &world.nodes {
            let told = &node.told;
            // Clocks may run a little faster than true time.
            let age = told.began.map_or(0, |began| (world.now - began) * 21 / 20);
            let own_lease = nanos(node.rules.timing.lease());
            let reasons = u64::from(told.reasons + told.failures) + age / (own_lease * 4).max(TEN_MINUTES) * 2;
            if u64::from(told.puts) > reasons + 1 {
                return Err(format!("{} has put {} notices for {reasons} reasons", node.me, told.puts));
            }
            let leases = age / own_lease;
            if u64::from(told.attends) > 2 + leases + 2 * u64::from(told.failures + told.reasons) {
                return Err(format!("{} said {} times within {leases} leases that it is there", node.me, told.attends));
            }
        }
        if !matches!(what, What::Finished) {
            return Ok(());
        }
        for (nr, node) in world.nodes.iter().enumerate() {
            let (says, since) = node.told.says;
            if !world.announces(nr)
                || node.told.lost
                || !node.lives()
                || world.now < since.max(world.plan.quiet_at) + lease * 3
            {
                continue;
            }
            let listed = world.listed().find(|listing| listing.standing.candidate == node.me);
            if listed.map(|listing| listing.standing.fit) != says {
                return Err(format!("{} is listed as {listed:?}, and says {says:?}", node.me));
            }
        }
        Ok(())
    }
}
