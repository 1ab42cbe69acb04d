//! The last will: how the seat of a dead process is freed before its lease has expired.
//!
//! Claim: a last will never takes a seat from a candidate whose work may still run.
//!
//! - Its executor starts only after it has seen that the process of the candidate is dead, and all of its work with
//!   it. That is the executor's promise, and everything else follows from it. An incarnation never starts again, so
//!   nothing that happens later makes this one alive.
//! - It frees the seat only if the seat names this incarnation. A seat that names another candidate is left alone, however
//!   late the will is executed, and however often. Which term the seat names does not matter: no work of any term of this
//!   incarnation is left. So the seat is also freed if the process died after its bid had arrived, and before it knew that
//!   it had won. The vacant record has the token of the record that was read, so tokens keep rising.
//! - The write replaces exactly the record that was read. If another candidate has taken the seat in between, or a
//!   renewal that the dead process had sent arrived, the write loses, and the seat is read again.
//! - A renewal that arrives later than the write loses, too: it requires a seat that still names the holder and the
//!   term. So does a bid of the dead process, because it requires the version from before this term.
//! - A write whose answer was lost is settled by the next read.

use std::sync::Arc;

use crate::{Candidate, Crash, Reading, Record, Token, Version};

/// The last will of a candidate: whose seat to free when its process is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWill {
    /// The candidate whose process is dead.
    pub candidate: Candidate,
    /// The process that executes the will, as a text for people.
    pub by: Arc<str>,
}

/// The next step of a last will, after the seat was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WillStep {
    /// Write this record if the seat still has this version.
    Free {
        /// The version that the seat must have.
        expected: Version,
        /// The vacant record to write.
        record: Box<Record>,
    },
    /// The seat is free: an execution of this will has ended the term with this token.
    Freed(Token),
    /// The seat does not name the dead candidate, so there is nothing to free.
    NotHeld,
}

impl LastWill {
    /// Decides what to do with a seat that was read like this. `nonce` is a random number for the record.
    pub fn step(&self, reading: &Reading, nonce: u64) -> WillStep {
        let Some(seat) = &reading.seat else { return WillStep::NotHeld };
        let seen = &seat.record;
        if !seen.is_held_by(self.candidate.incarnation) {
            let done = seen.crash.as_ref().filter(|crash| crash.of.incarnation == self.candidate.incarnation);
            return done.map_or(WillStep::NotHeld, |crash| WillStep::Freed(crash.token));
        }
        let crash = Crash { of: self.candidate.clone(), token: seen.token, by: self.by.clone() };
        let record = Record {
            nonce,
            ranked: seen.ranked,
            claim: seen.claim.clone(),
            crash: Some(Arc::new(crash)),
            unknown: seen.unknown.clone(),
            ..Record::new(None, seen.token, seen.lease)
        };
        WillStep::Free { expected: seat.version.clone(), record: Box::new(record) }
    }
}
