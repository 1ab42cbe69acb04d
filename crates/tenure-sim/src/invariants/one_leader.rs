//! At most one term is current at any time.
//!
//! A term is current from the moment it began until it ended or its published deadline has passed on its node's
//! own clock, even if the process is paused meanwhile.
//!
//! Not promised, and so not counted: with `takeover=instant`, a term whose session the store has ended early,
//! until the node has learned of that by a notification or a read.

use super::{Invariant, What};
use crate::node::{Node, Published};
use crate::plan::Kind;
use crate::store::SessionState;
use crate::world::World;

pub(super) struct OneLeader;

impl Invariant for OneLeader {
    fn name(&self) -> &'static str {
        "one leader"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        if matches!(what, What::Acted(..) | What::TakesIn(..)) {
            // In the middle of a step: the actions that it has yet to report still count.
            return Ok(());
        }
        let mut current = world.nodes.iter().filter_map(|node| Some((node, promised(world, node)?)));
        let Some((one, term)) = current.next() else { return Ok(()) };
        let Some((other, another)) = current.next() else { return Ok(()) };
        Err(format!("{} leads term {} while {} leads term {}", one.me, term.token, other.me, another.token))
    }
}

/// Returns the current term of a node, if no other node may have one at the same time.
pub(super) fn promised<'a>(world: &World, node: &'a Node) -> Option<&'a Published> {
    let term = node.current(world.now)?;
    let ended_early =
        || term.session.is_some_and(|session| world.store.session(world.now, session) == SessionState::EndedEarly);
    let may_not_know = world.plan.kind == Kind::SessionInstant && !term.knows_of_loss && ended_early();
    (!may_not_know).then_some(term)
}
