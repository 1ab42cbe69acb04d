//! Stores that wrap another store, for laws and tests: each forwards all calls and changes one thing.

mod blocking;
mod counting;
mod cuttable;

pub use blocking::{Blocking, Brake};
pub use counting::{Counter, Counting, Counts};
pub use cuttable::{Cuttable, Traffic, Wire};
