//! Who steps down lets another go first: it does not lead again before another has led or two of its
//! leases have passed.

use tenure_protocol::{Action, Moment, Why};

use super::{Invariant, What};
use crate::world::World;

pub(super) struct StepsAside {
    /// Until when each node stands aside.
    aside_until: Vec<Option<Moment>>,
}

impl StepsAside {
    pub(super) fn new(nodes: usize) -> Self {
        Self { aside_until: vec![None; nodes] }
    }
}

impl Invariant for StepsAside {
    fn name(&self) -> &'static str {
        "who steps down steps aside"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, Action::Ended { why: Why::SteppedDown, .. }) => {
                let node = &world.nodes[nr];
                self.aside_until[nr] = Some(node.clock.read(world.now) + node.rules.timing.lease() * 2);
            }
            What::Acted(nr, Action::Began { token, .. }) => {
                let node = &world.nodes[nr];
                if self.aside_until[nr].take().is_some_and(|until| node.clock.read(world.now) < until) {
                    return Err(format!("{} began term {token} right after it had stepped down", node.me));
                }
                // Another has led.
                self.aside_until.fill(None);
            }
            What::Gone(nr) => self.aside_until[nr] = None,
            _ => {}
        }
        Ok(())
    }
}
