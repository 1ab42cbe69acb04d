//! Machines that are broken on purpose, one rule each: `src/mutants/NAME.mutant`, built by `build.rs`.
//!
//! A mutant that nothing catches would mean that the world is too kind, or that the rule is not needed.

use std::time::Duration;

use tenure_protocol::{Action, BatchLimits, Input, Lane, Moment, PresenceAction, PresenceInput, Standing, Token};

use crate::driven::{Parts, REAL};

/// A machine that is broken on purpose.
pub struct Mutant {
    /// Its file's name.
    pub name: &'static str,
    /// What is broken.
    pub about: &'static str,
    /// The invariant that must notice.
    pub caught_by: &'static str,
    pub(crate) make: Parts,
}

/// All of them, by name.
pub fn mutants() -> &'static [Mutant] {
    ALL
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
