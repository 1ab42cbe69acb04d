//! A candidate that is asked to stop does so within a bounded time, and leaves the seat to others.
//!
//! The bound is the grace for its work, the time until its last write has lapsed (a lease), and two calls. It
//! counts from the request, from the end of a pause, or from the return of work that could not be cut,
//! whichever was last.
//!
//! Whatever the reason for the stop, all its work has returned before it.
//!
//! If no message is lost or late, the seat does not name the candidate any more.

use tenure_protocol::{Action, Moment, Stopped};

use super::{Invariant, What};
use crate::plan::Weather;
use crate::world::World;

pub(super) struct StopEnds {
    /// When each node must have stopped.
    due: Vec<Option<Moment>>,
}

impl StopEnds {
    pub(super) fn new(nodes: usize) -> Self {
        Self { due: vec![None; nodes] }
    }
}

impl Invariant for StopEnds {
    fn name(&self) -> &'static str {
        "a stop ends"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, Action::Stopped(why)) => {
                let node = &world.nodes[nr];
                if node.works(None) {
                    return Err(format!("{} has stopped while its work still runs", node.me));
                }
                let names = world.store.shelf().names().and_then(|(holder, _)| holder);
                let certain = matches!(world.plan.weather, Weather::Calm | Weather::Orderly);
                if certain && *why == Stopped::Asked && names == Some(node.me.incarnation) {
                    return Err(format!("{} has stopped, but the seat still names it", node.me));
                }
            }
            What::Gone(nr) => self.due[nr] = None,
            What::Moved => {
                for (nr, node) in world.nodes.iter().enumerate() {
                    if node.asked_to_stop.is_none() || !node.runs() || node.paused || node.works(None) {
                        self.due[nr] = None;
                        continue;
                    }
                    let (now, timing) = (node.clock.read(world.now), &node.rules.timing);
                    let bound = timing.stop_grace() + timing.lease() + timing.call_timeout() * 2;
                    let due = *self.due[nr].get_or_insert(now + bound);
                    if now > due {
                        return Err(format!("{} has not stopped within {bound:?}", node.me));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
