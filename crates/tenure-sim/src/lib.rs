//! The election of Tenure against model stores that lose, delay, forget and lie about the time.
//!
//! One seed is one world: a store of some kind, three to five candidates with clocks of their own,
//! and what goes wrong; or a few processes with many elections each, whose calls and news they share. The same seed always gives the same world, step by step.

mod clock;
mod crowd;
mod driven;
mod faults;
mod health;
mod invariants;
mod mutants;
mod node;
mod outcome;
mod plan;
mod store;
mod words;
mod world;

pub use faults::FaultKind;
pub use mutants::{Mutant, mutants};
pub use outcome::{Outcome, Stats, Violation};

/// Runs the world of this seed to its end, or to the first broken promise.
pub fn run(seed: u64, traced: bool) -> Outcome {
    run_with(driven::REAL, seed, traced)
}

/// Runs the world of this seed with machines that are broken on purpose.
pub fn run_mutant(mutant: &Mutant, seed: u64, traced: bool) -> Outcome {
    run_with(mutant.make, seed, traced)
}

/// One seed in eight is a world of many seats.
fn run_with(make: driven::Parts, seed: u64, traced: bool) -> Outcome {
    if seed % 8 == 7 {
        return crowd::Crowd::new(seed, make, traced).run();
    }
    world::World::new(plan::Plan::of(seed), make, traced).run()
}

/// The names of everything that is checked.
pub fn invariants() -> Vec<&'static str> {
    [invariants::names().as_slice(), &crowd::NAMES].concat()
}
