//! Work of one term does not continue in the next: no term begins in a process before all work of its earlier
//! terms has returned.
//!
//! This file does not check that cuttable work ends with its term, because the world itself drops it by the
//! node's clock, as the engine would. *One leader* checks the deadline at which it is dropped.

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
