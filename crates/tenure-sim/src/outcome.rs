//! What came of a seed.

use std::collections::BTreeMap;

use crate::faults::FaultKind;

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The kind of store.
    pub kind: &'static str,
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// What there was.
    pub stats: Stats,
    /// What happened, in words, if it was asked for.
    pub timeline: Vec<String>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
}

/// What there was in one seed or in many.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Steps of machines.
    pub steps: u64,
    /// Terms that began.
    pub terms: u64,
    /// Terms that began after one of another candidate.
    pub hand_overs: u64,
    /// Faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The longest that nobody led after everything had fallen quiet, in leases of the longest.
    pub slowest_recovery: f64,
}

impl Stats {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.terms += other.terms;
        self.hand_overs += other.hand_overs;
        for (&fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.slowest_recovery = self.slowest_recovery.max(other.slowest_recovery);
    }
}
