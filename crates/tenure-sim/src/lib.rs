//! Runs the election of Tenure against model stores that lose, delay and forget data, and whose clocks are
//! wrong.
//!
//! A seed determines one world: either a store of some kind, three to five candidates with clocks of their own,
//! and the faults that occur; or a few processes with many elections each, which share calls and pushes. The
//! same seed always gives the same world, step by step.

mod clock;
mod driven;
mod faults;
mod health;
mod invariants;
mod many_seats;
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

/// Runs the world of this seed until it ends or an invariant is violated. With `traced`, the outcome contains a
/// timeline.
pub fn run(seed: u64, traced: bool) -> Outcome {
    run_with(driven::REAL, seed, traced)
}

/// Runs the world of this seed with one rule of the protocol broken. With `traced`, the outcome contains a
/// timeline.
pub fn run_mutant(mutant: &Mutant, seed: u64, traced: bool) -> Outcome {
    run_with(mutant.make, seed, traced)
}

/// One seed in eight is a world of many seats.
fn run_with(make: driven::Parts, seed: u64, traced: bool) -> Outcome {
    if seed % 8 == 7 {
        return many_seats::ManySeats::new(seed, make, traced).run();
    }
    world::World::new(plan::Plan::of(seed), make, traced).run()
}

/// Returns the names of all invariants, as mutants and violations refer to them.
pub fn invariants() -> Vec<&'static str> {
    [invariants::names().as_slice(), &many_seats::NAMES].concat()
}
