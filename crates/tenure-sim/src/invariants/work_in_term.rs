//! Work runs only within its term. Work that can be cut is gone when its term is; as for the rest, no
//! other term begins in the same process before it has returned.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::world::World;

pub(super) struct WorkInTerm;

impl Invariant for WorkInTerm {
    fn name(&self) -> &'static str {
        "work stays in its term"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let What::Acted(nr, Action::Began { token, .. }) = what else { return Ok(()) };
        let node = &world.nodes[*nr];
        match node.work.iter().find(|work| work.token != *token) {
            Some(work) => Err(format!("{} began term {token} while work of term {} still ran", node.me, work.token)),
            None => Ok(()),
        }
    }
}
