//! A machine does not spin: it takes a bounded number of steps per lease.

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

/// A leader renews three times per lease and reads the board as often. A failing store adds pauses of a
/// thirtieth of a lease on average. Each of these takes a few steps, and randomness may multiply them.
const MAX_STEPS_PER_LEASE: u32 = 400;

pub(super) struct NoLivelock {
    window: Vec<(Time, u32)>,
}

impl NoLivelock {
    pub(super) fn new(nodes: usize) -> Self {
        Self { window: vec![(0, 0); nodes] }
    }
}

impl Invariant for NoLivelock {
    fn name(&self) -> &'static str {
        "no livelock"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let What::Stepped(nr) = *what else { return Ok(()) };
        let (since, steps) = &mut self.window[nr];
        if world.now >= *since + nanos(world.plan.parts[nr].lease) {
            (*since, *steps) = (world.now, 0);
        }
        *steps += 1;
        if *steps > MAX_STEPS_PER_LEASE {
            return Err(format!("{} took {steps} steps within a lease", world.nodes[nr].me));
        }
        Ok(())
    }
}
