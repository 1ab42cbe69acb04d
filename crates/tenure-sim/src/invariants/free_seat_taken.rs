//! A free seat is taken, whoever was named to follow or goes first: nobody holds back for long, nor for ever.
//!
//! The seat is free while the store has no record of it, or a vacant one. Take any candidate that nothing
//! keeps from the seat: it runs, stands by itself, is well, wraps nothing up, is not stepping aside, has
//! nothing lost to wait out, and the store answers it. Whoever it is, somebody holds the seat at the
//! latest this long after the seat became free and that candidate able, counted on its clock:
//!
//! | what | leases of that candidate |
//! |---|---|
//! | what is under way is answered, and a pause is over | 1/15 + 1/15 |
//! | it looks: without a push; where a push proves itself alive, it may only look once a lease | 1/3, or 1 |
//! | another goes first: the named heir or a higher priority, from this first look and once for each vacancy | 2/5 |
//! | it looks again and bids; once more if its first try crossed with another write | 3/15 + 1/15 |
//!
//! That is 17/15 of a lease, or 27/15. It cannot be said where the store does not answer: a bid that is lost
//! on its way leaves the seat as it was. One candidate is enough, so each of them stands again by itself.

use std::time::Duration;

use tenure_protocol::{Push, Timing, Version};

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

#[derive(Default)]
pub(super) struct FreeSeatTaken {
    /// The free seat, and since when.
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
                return Err(format!("nobody took the free seat, though {} could have within {bound:?}", node.me));
            }
        }
        Ok(())
    }
}

fn bound(timing: &Timing, push: Push) -> Duration {
    let look = if push == Push::Proven { timing.lease() } else { timing.lease() / 3 };
    look + timing.head_start() + timing.retry_every() * 2 + timing.call_timeout() * 4
}
