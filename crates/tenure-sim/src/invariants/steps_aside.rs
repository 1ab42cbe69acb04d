//! Who steps down lets another go first: it does not lead again before another has held the seat or two
//! of its leases have passed.

use tenure_protocol::{Action, EndReason, Moment, Token};

use super::{Invariant, What};
use crate::node::Node;
use crate::world::World;

pub(super) struct StepsAside {
    /// Until when each node stands aside, and from which term it stepped down.
    aside: Vec<Option<(Moment, Token)>>,
}

impl StepsAside {
    pub(super) fn new(nodes: usize) -> Self {
        Self { aside: vec![None; nodes] }
    }
}

impl Invariant for StepsAside {
    fn name(&self) -> &'static str {
        "who steps down steps aside"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            // From when the end began, whatever it came to in the end.
            What::Acted(nr, Action::Ending { why: EndReason::SteppedDown, token, .. }) => {
                let node = &world.nodes[nr];
                self.aside[nr] = Some((node.clock.read(world.now) + node.rules.timing.lease() * 2, *token));
            }
            What::Acted(nr, Action::Began { token, .. }) => {
                let node = &world.nodes[nr];
                if let Some((until, from)) = self.aside[nr].take()
                    && node.clock.read(world.now) < until
                    && !another_held(world, node, from)
                {
                    return Err(format!("{} began term {token} right after it had stepped down", node.me));
                }
            }
            What::Gone(nr) => self.aside[nr] = None,
            _ => {}
        }
        Ok(())
    }
}

/// Whether another than this node was ever in the seat after this term.
fn another_held(world: &World, node: &Node, after: Token) -> bool {
    let me = node.me.incarnation;
    world.store.shelf().ever_held.iter().any(|&(holder, token)| token > after && holder != me)
}
