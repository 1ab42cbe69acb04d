//! A candidate does not flood the leader: two of its requests are at least a lease apart, on its own clock.

use tenure_protocol::{Action, Moment};

use super::{Invariant, What};
use crate::world::World;

pub(super) struct RequestsApart {
    asked: Vec<Option<Moment>>,
}

impl RequestsApart {
    pub(super) fn new(nodes: usize) -> Self {
        Self { asked: vec![None; nodes] }
    }
}

impl Invariant for RequestsApart {
    fn name(&self) -> &'static str {
        "requests are a lease apart"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, Action::Ask(request)) => {
                let node = &world.nodes[nr];
                let (now, lease) = (node.clock.read(world.now), node.rules.timing.lease());
                if self.asked[nr].replace(now).is_some_and(|before| now < before + lease) {
                    return Err(format!("{} sends another request within a lease: {request:?}", node.me));
                }
            }
            What::Gone(nr) => self.asked[nr] = None,
            _ => {}
        }
        Ok(())
    }
}
