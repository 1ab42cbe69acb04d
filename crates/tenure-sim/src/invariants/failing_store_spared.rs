//! While no write works, a candidate that does not lead writes ever more rarely, though readings work.
//!
//! Its pauses grow to a third of a lease at most, and are half of that on average: six writes a lease. The first few
//! come sooner, and luck may bring some more.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

/// In so many leases from the first.
const LEASES: u64 = 3;
const MOST_WRITES: u32 = 45;

pub(super) struct FailingStoreSpared {
    /// Since when each candidate is counted, and how often it has written.
    writes: Vec<(Time, u32)>,
}

impl FailingStoreSpared {
    pub(super) fn new(nodes: usize) -> Self {
        Self { writes: vec![(0, 0); nodes] }
    }
}

impl Invariant for FailingStoreSpared {
    fn name(&self) -> &'static str {
        "a failing store is spared"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let (nr, written) = match *what {
            What::Acted(nr, Action::Swap { .. } | Action::Renew { .. }) => (nr, true),
            What::Gone(nr) => (nr, false),
            _ => return Ok(()),
        };
        let (node, (since, writes)) = (&world.nodes[nr], &mut self.writes[nr]);
        let fails = world.writes_fail.as_ref().is_some_and(|(until, _)| world.now < *until);
        let lease = nanos(world.plan.parts[nr].lease);
        if !written || !fails || node.term.is_some() || world.now >= *since + lease * LEASES {
            (*since, *writes) = (world.now, 0);
        }
        *writes += 1;
        if *writes > MOST_WRITES {
            return Err(format!("{} wrote {writes} times within {LEASES} leases, all in vain", node.me));
        }
        Ok(())
    }
}
