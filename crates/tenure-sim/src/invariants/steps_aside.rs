//! A leader that steps down or yields lets others go first: it does not lead again before another candidate has held
//! the seat, or two of its leases (after a yield two fifths of one) have passed.

use tenure_protocol::{Action, EndReason, Moment, Token};

use super::{Invariant, What};
use crate::node::Node;
use crate::world::World;

pub(super) struct StepsAside {
    /// Until when each node stands aside, and the term that it stepped down from.
    aside: Vec<Option<(Moment, Token)>>,
}

impl StepsAside {
    pub(super) fn new(nodes: usize) -> Self {
        Self { aside: vec![None; nodes] }
    }
}

impl Invariant for StepsAside {
    fn name(&self) -> &'static str {
        "a step-down lets another lead"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            // Counted from when the end began, whatever the final reason was.
            What::Acted(nr, Action::Ending { why, token, .. }) => {
                let node = &world.nodes[nr];
                let span = match why {
                    EndReason::SteppedDown => node.rules.timing.lease() * 2,
                    EndReason::Yielded => node.rules.timing.head_start(),
                    _ => return Ok(()),
                };
                self.aside[nr] = Some((node.clock.read(world.now) + span, *token));
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

/// Returns whether another node was ever in the seat after this term.
fn another_held(world: &World, node: &Node, after: Token) -> bool {
    let me = node.me.incarnation;
    world.store.shelf().ever_held.iter().any(|&(holder, token)| token > after && holder != me)
}
