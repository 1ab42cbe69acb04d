//! Occasions: jobs that one candidate runs for all.
//!
//! The bid for the seat carries the claim of the occasion, and a candidate bids only over a record that does not
//! settle its occasion. A bid replaces exactly the record that was read. So between the record that did not settle
//! the occasion and the record that claims it there is no other write, and no occasion is claimed twice.

use std::sync::Arc;

use super::Machine;
use crate::{Claim, Record, Token};

/// What the machine knows about its own claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The token of the first bid of this machine. A seat that names this candidate with a lower token was won by
    /// an earlier election of the same process.
    pub(super) first_bid: Option<Token>,
    /// The token of the last term whose work returned.
    pub(super) done: Option<Token>,
}

impl Machine {
    /// Returns the claim in the seat as last seen.
    pub fn last_claim(&self) -> Option<&Claim> {
        self.observation.seat()?.record.claim.as_deref()
    }

    /// Returns whether the seat settles the occasion of this candidate, so that it must not bid.
    pub(super) fn is_claimed(&self) -> bool {
        let Some(seat) = self.observation.seat() else { return false };
        let settles = |claim: &Claim| self.rules.occasion.is_some_and(|occasion| occasion.is_settled_by(claim));
        seat.record.claim.as_deref().is_some_and(settles) && !self.is_unused_bid(&seat.record)
    }

    /// Returns whether this record is a bid of this machine that landed and has not become a term.
    fn is_unused_bid(&self, record: &Record) -> bool {
        let is_bid = self.claims.first_bid.is_some_and(|first| record.token >= first);
        is_bid && record.token > self.led && record.is_held_by(self.me.incarnation)
    }

    /// Returns the claim to write with this token.
    pub(super) fn claim(&self, token: Token, held: bool) -> Option<Arc<Claim>> {
        let seen = self.observation.seat().and_then(|seat| seat.record.claim.clone());
        let claim = match self.rules.occasion {
            Some(occasion) if held => {
                let at_ms = occasion.time_after(seen.as_deref());
                Claim { at_ms, by: self.me.id.clone(), token, done: false }
            }
            Some(_) if self.claims.done == Some(token) => Claim { done: true, ..Claim::clone(&*seen?) },
            _ => return seen,
        };
        Some(Arc::new(claim))
    }
}
