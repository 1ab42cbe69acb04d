//! Once nothing goes wrong any more, someone leads within a bounded time.
//!
//! The bound, in leases of the longest, for the slowest chain of events:
//!
//! | what | leases |
//! |---|---|
//! | what was under way is settled: an attempt, and a pause at its longest | 2/5 |
//! | work that cannot be cut returns, or a candidate that stepped down has held back long enough | 2 |
//! | the session of a candidate that is gone ends (granted up to 1.3 leases) | 7/5 |
//! | a follower looks, without any push | 1 |
//! | what was lost, or the end of a session, is waited out | 1 |
//! | the lapse is seen by another look, another is let go first, and the seat is bid for | 1/5 + 2/5 |
//! | a win with too little left is renewed first; a candidate that is down starts | 1 |
//!
//! Whoever was unwell is well again within a lease, which is less than the second of these. They hardly
//! ever add up, but nothing forbids it: seven leases and two fifths.

use std::time::Duration;

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

/// How long after quiet has fallen somebody must lead.
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
            return Err(format!("nobody led within {:.0} s after everything had fallen quiet", bound as f64 / 1e9));
        }
        Ok(())
    }
}
