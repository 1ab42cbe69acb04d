//! Occasions: jobs that one candidate runs for all.
//!
//! Claim: an occasion that is not resumable begins at most one term.
//!
//! - The bid for the seat carries the claim, and a candidate bids only over a record that does not settle its occasion.
//!   A bid replaces exactly the record that was read. So no other write comes between the record that did not settle the
//!   occasion and the record that claims it.
//! - Every later record settles the occasion, too, because the time of the claim never goes back: renewals, releases and
//!   terms without an occasion copy the claim, and a bid over a claim that does not settle its occasion has a later time,
//!   or the same time if it resumes that claim.
//! - The exception is a record that names this candidate, was written by this machine and has not become a term
//!   (`is_unused_bid`). Its claim is this candidate's own, and only this machine can begin a term with it, or bid over it
//!   for the same occasion. To all other machines it settles the occasion like any other.
//!
//! The claim is made before the work starts and is never withdrawn, because other candidates may have left on account of
//! it. So an occasion that is not resumable can pass without work, if the candidate dies or stops in between.

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

    /// Returns whether this record is a bid of this machine that was stored and has not become a term.
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
