//! A term that begins has a higher token than every term that began before it, and every bid is above every
//! token that its candidate has seen. (Rewriting its own record is not a bid.)
//!
//! One case is not promised: with `takeover=instant`, the store can end a session early, and a term begins on it
//! before its node can know of that.

use tenure_protocol::{Action, Token};

use super::{Invariant, What, one_leader};
use crate::world::World;

#[derive(Default)]
pub(super) struct TokensRise {
    highest: Token,
}

impl Invariant for TokensRise {
    fn name(&self) -> &'static str {
        "tokens rise"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let What::Acted(nr, action) = what else { return Ok(()) };
        let node = &world.nodes[*nr];
        if let Action::Swap { record, .. } = action
            && !record.is_vacant()
            && record.token <= node.highest_seen
            && node.seen != Some(Some((Some(node.me.incarnation), record.token)))
        {
            return Err(format!("{} bid for term {} having seen {}", node.me, record.token, node.highest_seen));
        }
        let Action::Began { token, .. } = action else { return Ok(()) };
        if one_leader::promised(world, node).is_some() && *token <= self.highest {
            return Err(format!("{} began term {token} after a term {} had begun", node.me, self.highest));
        }
        self.highest = self.highest.max(*token);
        Ok(())
    }
}
