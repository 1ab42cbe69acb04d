//! At most one term is current at any time.
//!
//! A term is current from the moment it began until it ended or its published deadline has passed
//! on its node's own clock, whether or not the process stands still meanwhile.
//!
//! Not promised, and so not counted: with `takeover=instant`, a term whose session the store has
//! ended before its time, until its node has been told of that, by the store's news or by a reading.

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
            // Half-way through a step: what it is about to tell still counts.
            return Ok(());
        }
        let mut current = world.nodes.iter().filter_map(|node| Some((node, promised(world, node)?)));
        let Some((one, term)) = current.next() else { return Ok(()) };
        let Some((other, another)) = current.next() else { return Ok(()) };
        Err(format!("{} counts on term {} while {} counts on term {}", one.me, term.token, other.me, another.token))
    }
}

/// The current term of a node, if nobody else may have one beside it.
pub(super) fn promised<'a>(world: &World, node: &'a Node) -> Option<&'a Published> {
    let term = node.current(world.now)?;
    let ended_early =
        || term.session.is_some_and(|session| world.store.session(world.now, session) == SessionState::EndedEarly);
    let may_not_know = world.plan.kind == Kind::SessionInstant && !term.told_lost && ended_early();
    (!may_not_know).then_some(term)
}
