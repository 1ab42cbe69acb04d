//! A free seat is taken, also if an heir or a higher priority goes first: no candidate holds back for long.
//!
//! The seat is free while the store has no record of it, or a vacant one. Consider any candidate that nothing
//! keeps from the seat: it runs, stands on its own, is healthy, wraps up no work, does not step aside, has no
//! loss to wait out, and the store answers it. Then some candidate holds the seat at the latest this long after
//! the seat became free and the considered candidate became able, counted on its clock:
//!
//! | step | leases of that candidate |
//! |---|---|
//! | the call in flight is answered, and a pause ends | 1/15 + 1/15 |
//! | it looks without a push; if the store never loses a push silently, it may look only once per lease | 1/3, or 1 |
//! | it leaves the seat to the heir or a higher priority, from this first look on and once per vacancy | 2/5 |
//! | it looks again and bids; once more if its first attempt crossed with another write | 3/15 + 1/15 |
//!
//! The sum is 17/15 of a lease, or 27/15. If the store does not answer, there is no bound, because a bid that
//! is lost on its way leaves the seat as it was. One able candidate is enough for the bound, so the invariant
//! also shows that each of them stands again on its own.

use std::time::Duration;

use tenure_protocol::{Push, Timing, Version};

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

#[derive(Default)]
pub(super) struct FreeSeatTaken {
    /// The free seat, and since when it has been free.
    free: Option<(Option<Version>, Time)>,
}

impl Invariant for FreeSeatTaken {
    fn name(&self) -> &'static str {
        "a free seat is taken"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        if !matches!(what, What::Moved) {
            return Ok(());
        }
        let seat = world.store.shelf().seat.as_ref();
        if seat.is_some_and(|kept| !kept.record.is_vacant()) {
            self.free = None;
            return Ok(());
        }
        let version = seat.map(|kept| &kept.version);
        let since = match &self.free {
            Some((free, since)) if free.as_ref() == version => *since,
            _ => {
                self.free = Some((version.cloned(), world.now));
                world.now
            }
        };
        for (nr, node) in world.nodes.iter().enumerate() {
            let Some(able) = world.able_since(nr) else { continue };
            let bound = bound(&node.rules.timing, node.rules.push);
            let clock = node.clock;
            if world.now > clock.when(clock.read(since.max(able)) + bound) + nanos(world.plan.latency) {
                return Err(format!(
                    "the free seat was not taken, though {} could have taken it within {bound:?}",
                    node.me
                ));
            }
        }
        Ok(())
    }
}

fn bound(timing: &Timing, push: Push) -> Duration {
    let look = if push == Push::Proven { timing.lease() } else { timing.lease() / 3 };
    look + timing.head_start() + timing.retry_every() * 2 + timing.call_timeout() * 4
}
