//! An occasion is led at most once. No term begins for an occasion that an earlier term was for, or for one before it.
//! If the occasion is resumable, a term can begin again for it, but not after the work of a term was done and its
//! release has reached the store. This holds as long as the store forgets nothing.
//!
//! Where no candidate is stopped or killed, an occasion is also led at least once: a candidate leaves because of a
//! claim only if a term for this occasion, or for a later one, has begun or soon begins.

use std::collections::BTreeMap;

use tenure_protocol::{Action, EndReason, Record, Stopped, Token};

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::plan::Weather;
use crate::world::World;

#[derive(Default)]
pub(super) struct OccasionsRunOnce {
    /// The latest occasion for which a term has begun.
    led: Option<u64>,
    /// The occasions of terms whose work was done.
    finished: BTreeMap<Token, u64>,
    /// The latest occasion whose work was done before the seat was released.
    done: Option<u64>,
    /// The occasions that candidates left because of a claim, and when.
    left: Vec<(u64, Time)>,
}

impl Invariant for OccasionsRunOnce {
    fn name(&self) -> &'static str {
        "an occasion runs once"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let Some(plan) = world.plan.occasions.filter(|_| !world.has_forgotten()) else { return Ok(()) };
        match what {
            What::Acted(nr, action) => {
                let node = &world.nodes[*nr];
                let Some(occasion) = node.occasion else { return Ok(()) };
                match action {
                    Action::Began { token, .. } => {
                        let last = if plan.resumes { self.done } else { self.led };
                        if last.is_some_and(|last| last >= occasion) {
                            return Err(format!("{} leads term {token} for occasion {occasion} again", node.me));
                        }
                        self.led = self.led.max(Some(occasion));
                    }
                    Action::Ending { token, why: EndReason::Yielded, .. } => {
                        self.finished.insert(*token, occasion);
                    }
                    Action::Stopped(Stopped::Claimed) => self.left.push((occasion, world.now)),
                    _ => {}
                }
            }
            What::Moved => {
                // A last will does not know whether the work of the dead process was done.
                let is_willed =
                    |record: &Record| record.crash.as_ref().is_some_and(|crash| crash.token == record.token);
                let is_released = |record: &Record| record.is_vacant() && !is_willed(record);
                let released = world.store.shelf().seat.as_ref().filter(|seat| is_released(&seat.record));
                let done = released.and_then(|seat| self.finished.get(&seat.record.token).copied());
                self.done = self.done.max(done);
            }
            What::Finished if matches!(world.plan.weather, Weather::Calm | Weather::Gentle) => {
                let soon = nanos(world.plan.longest_lease()) * 2;
                let is_skipped = |(occasion, at): &&(u64, Time)| Some(*occasion) > self.led && at + soon < world.now;
                if let Some((occasion, _)) = self.left.iter().find(is_skipped) {
                    return Err(format!("candidates left occasion {occasion}, and no term was for it"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
