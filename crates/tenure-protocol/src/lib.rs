//! The leader election of Tenure as a pure function of inputs and time.
//!
//! There is no clock, no network, no thread and no randomness in here: they come in as arguments.
//! The same code runs in production, under a hand-moved clock in tests, and by the million steps
//! in the simulator.
//!
//! - [`Machine`] is the election of one candidate: [`Input`]s go in, [`Action`]s come out.
//! - [`Seat`], [`Record`] and [`Life`] are what a store keeps and can say.
//! - [`Durations`] are scaled from the lease and checked once into a [`Timing`].

mod dice;
mod machine;
mod messages;
mod moment;
mod rules;
mod score;
mod seat;
mod sight;
mod timing;

pub use dice::Dice;
pub use machine::Machine;
pub use messages::{Action, Bid, Change, Fault, Input, Request, Standing, Stopped, Swap, Why};
pub use moment::{Moment, StoreTime};
pub use rules::{Judge, Push, Rules, Takeover};
pub use score::Score;
pub use seat::{Candidate, Identity, Incarnation, Leader, Life, Reading, Record, Seat, Token, Version};
pub use timing::{DoesNotFit, Durations, Timing, TimingError};
