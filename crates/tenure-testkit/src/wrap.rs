//! Stores around a store, for laws and tests: each forwards everything, and one thing differently.

mod blocking;
mod counting;
mod cuttable;

pub use blocking::{Blocking, Brake};
pub use counting::{Counter, Counting, Counts};
pub use cuttable::{Cuttable, Traffic, Wire};
