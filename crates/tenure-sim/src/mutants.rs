//! Machines with one rule broken on purpose: `src/mutants/NAME.mutant`, built by `build.rs`.
//!
//! If no invariant catches a mutant, either the simulated worlds are too harmless, or the rule is unnecessary.

use std::time::Duration;

use tenure_protocol::{Action, BatchLimits, Input, Lane, Moment, PresenceAction, PresenceInput, RosterEntry, Token};

use crate::driven::{Parts, REAL};

/// A machine with one rule broken on purpose.
pub struct Mutant {
    /// The name of its file, without the extension.
    pub name: &'static str,
    /// A sentence that says which rule is broken, and how.
    pub about: &'static str,
    /// The name of the invariant that must catch it.
    pub caught_by: &'static str,
    pub(crate) make: Parts,
}

/// Returns all mutants, sorted by name. Each breaks one rule.
pub fn mutants() -> &'static [Mutant] {
    ALL
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
