//! Who steps down lets another go first: it does not lead again before another has led or two of its
//! leases have passed.

use tenure_protocol::{Action, Moment, Token, Why};

use super::{Invariant, What};
use crate::node::NodeNr;
use crate::world::World;

pub(super) struct StepsAside {
    /// Until when each node stands aside, and from which term it stepped down.
    aside: Vec<Option<(Moment, Token)>>,
    /// The latest term, and whose it was.
    latest: (Token, NodeNr),
}

impl StepsAside {
    pub(super) fn new(nodes: usize) -> Self {
        Self { aside: vec![None; nodes], latest: (Token::ZERO, 0) }
    }
}

impl Invariant for StepsAside {
    fn name(&self) -> &'static str {
        "who steps down steps aside"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, Action::Ended { why: Why::SteppedDown, token }) => {
                let node = &world.nodes[nr];
                self.aside[nr] = Some((node.clock.read(world.now) + node.rules.timing.lease() * 2, *token));
            }
            What::Acted(nr, Action::Began { token, .. }) => {
                let node = &world.nodes[nr];
                if let Some((until, from)) = self.aside[nr].take()
                    && node.clock.read(world.now) < until
                    && (self.latest.0 <= from || self.latest.1 == nr)
                {
                    return Err(format!("{} began term {token} right after it had stepped down", node.me));
                }
                self.latest = (*token, nr);
            }
            What::Gone(nr) => self.aside[nr] = None,
            _ => {}
        }
        Ok(())
    }
}
