//! While all writes fail, a candidate that does not lead writes less and less often, even if reads succeed.
//!
//! Its pauses grow to at most a third of a lease, and are half of that on average: six writes per lease. The
//! first few writes come sooner, and randomness may add some more.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

/// The number of leases, counted from the first write.
const LEASES: u64 = 3;
const MAX_WRITES: u32 = 45;

pub(super) struct FailingStoreSpared {
    /// Since when the writes of each candidate are counted, and how many there were.
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
        if *writes > MAX_WRITES {
            return Err(format!("{} wrote {writes} times within {LEASES} leases, while all writes failed", node.me));
        }
        Ok(())
    }
}
