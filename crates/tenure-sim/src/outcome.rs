//! The outcome of a run.

use std::collections::BTreeMap;

use crate::faults::FaultKind;

/// The outcome of running one seed, returned by [`run`](crate::run).
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The kind of store that the world had, as a short phrase.
    pub kind: &'static str,
    /// The first invariant that was violated, if any.
    pub violation: Option<Violation>,
    /// Counts of steps, terms and faults in this world.
    pub stats: Stats,
    /// What happened, one line per event, if a timeline was requested.
    pub timeline: Vec<String>,
}

/// An invariant that was violated, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant, as in [`invariants`](crate::invariants).
    pub invariant: &'static str,
    /// A sentence that says what happened, with the nodes and tokens.
    pub what: String,
}

/// Counts of what happened in one seed or in many.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The number of steps that machines have taken.
    pub steps: u64,
    /// The number of terms that have begun, of all candidates.
    pub terms: u64,
    /// The number of terms that began after a term of another candidate.
    pub hand_overs: u64,
    /// The number of faults that have struck, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The longest time without a leader after all faults had stopped, in units of the longest lease.
    pub slowest_recovery: f64,
}

impl Stats {
    /// Adds the counts of another run. The slowest recovery becomes the maximum of both.
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
