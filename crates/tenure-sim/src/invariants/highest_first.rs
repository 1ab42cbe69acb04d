//! In calm weather, a vacant seat goes to the healthy candidate with the highest priority.
//!
//! Precisely: let the record be ranked and name no heir. Let every running candidate have seen who held it. Of
//! the candidates that the roster lists as healthy, except the last holder, consider those with the highest
//! priority: let nothing keep them from the seat until it is taken, and let them look in time (as for an heir).
//! Then no candidate of a lower priority takes the seat.

use tenure_protocol::{Incarnation, Version};

use super::{Invariant, What};
use crate::clock::nanos;
use crate::store::Kept;
use crate::world::World;

#[derive(Default)]
pub(super) struct HighestFirst {
    vacant: Option<Vacant>,
}

struct Vacant {
    version: Version,
    held_by: Option<Incarnation>,
    /// The priority that must take the seat, unless something kept the candidates that have it from the seat.
    highest: Option<i32>,
}

impl Invariant for HighestFirst {
    fn name(&self) -> &'static str {
        "the highest priority goes first"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        if !matches!(what, What::Moved) || !world.plan.has_board || !world.is_calm() {
            return Ok(());
        }
        let Some(kept) = &world.store.shelf().seat else {
            self.vacant = None;
            return Ok(());
        };
        match &mut self.vacant {
            Some(vacant) if vacant.version == kept.version => {
                let highest = vacant.highest.filter(|_| highest(world, vacant.held_by) == vacant.highest);
                vacant.highest = highest;
            }
            Some(Vacant { highest: Some(highest), .. }) => {
                let highest = *highest;
                self.vacant = None;
                if let Some(holder) = kept.record.holder.as_ref().filter(|_| kept.record.priority < highest) {
                    let its = kept.record.priority;
                    return Err(format!(
                        "{holder} of priority {its} took the seat before a candidate of priority {highest}"
                    ));
                }
            }
            _ => self.vacant = vacant(world, kept),
        }
        Ok(())
    }
}

fn vacant(world: &World, kept: &Kept) -> Option<Vacant> {
    let record = &kept.record;
    if !record.is_vacant() || record.heir.is_some() || !record.ranked {
        return None;
    }
    let before = world.store.shelf().past.last()?;
    let held_by = before.holder();
    let known = world.nodes.iter().all(|node| {
        let own = held_by == Some(node.me.incarnation);
        !node.runs() || own || node.seen == Some(Some((held_by, record.token)))
    });
    let known = known && before.record.token == record.token && held_by.is_some();
    Some(Vacant { version: kept.version.clone(), held_by, highest: highest(world, held_by).filter(|_| known) })
}

/// Returns the highest priority on the roster, if nothing keeps any candidate that has it from the seat.
fn highest(world: &World, held_by: Option<Incarnation>) -> Option<i32> {
    let fit = || {
        world.listed().filter(|listing| listing.standing.fit && Some(listing.standing.candidate.incarnation) != held_by)
    };
    let highest = fit().map(|listing| listing.standing.priority).max()?;
    let soon = nanos(world.plan.longest_lease()) / 15;
    let able = fit().filter(|listing| listing.standing.priority == highest).all(|listing| {
        let nr = world.nodes.iter().position(|node| node.me == listing.standing.candidate);
        let able = |nr| world.able_since(nr).is_some_and(|since| since <= world.now) && world.looks_in_time(nr);
        nr.is_some_and(able) && listing.since + soon <= world.now
    });
    able.then_some(highest)
}
