//! After all faults have stopped, a candidate leads within a bounded time.
//!
//! The bound, in units of the longest lease, for the slowest chain of events:
//!
//! | step | leases |
//! |---|---|
//! | calls in flight are settled: a call, and the longest pause | 2/5 |
//! | work that cannot be cut returns, or a candidate that stepped down has held back long enough | 2 |
//! | the session of a candidate that is gone expires (granted up to 1.3 leases) | 7/5 |
//! | a follower looks, without any push | 1 |
//! | a loss, or the end of a session, is waited out | 1 |
//! | another look shows the lapse, another candidate may go first, and the seat is bid for | 1/5 + 2/5 |
//! | a seat won with too little time left is renewed first; a candidate that is down starts | 1 |
//!
//! Unhealthy candidates become fit again within a lease, which is less than the second of these. The steps
//! hardly ever all occur in one run, but nothing forbids it: seven leases and two fifths.

use std::time::Duration;

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

/// Returns how long after the end of all faults a candidate must lead.
pub(crate) fn bound(lease: Duration) -> Time {
    nanos(lease) * 37 / 5
}

pub(super) struct Progress;

impl Invariant for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let bound = bound(world.plan.longest_lease());
        if matches!(what, What::Finished) && world.led_after_quiet.is_none_or(|at| at > world.plan.quiet_at + bound) {
            return Err(format!("no candidate led within {:.0} s after all faults had stopped", bound as f64 / 1e9));
        }
        Ok(())
    }
}
