//! The leader election of Tenure as a pure function of inputs and time.
//!
//! There is no clock, no network, no thread and no randomness in here: they come in as arguments.
//! The same code runs in production, under a hand-moved clock in tests, and by the million steps
//! in the simulator.
//!
//! - [`Machine`] is the election of one candidate: [`Input`]s go in, [`Action`]s come out.
//! - [`Admission`] decides which calls to the store go together, and when, for all candidates of a process.
//! - [`Presence`] decides when a process tells of itself, and of its candidates.
//! - [`Subscriptions`] decides which of them is told of what the store pushes.
//! - [`Seat`], [`Record`] and [`Life`] are what a store keeps and can say.
//! - [`Durations`] are scaled from the lease and checked once into a [`Timing`].

mod admission;
mod dice;
mod machine;
mod messages;
mod moment;
mod observation;
mod presence;
mod rules;
mod score;
mod seat;
mod subscriptions;
mod timing;

pub use admission::{Admission, Batch, BatchLimits, Group, Lane};
pub use dice::Dice;
pub use machine::Machine;
pub use messages::{
    Action, Bid, Change, EndReason, Fault, Input, NoteState, PresenceAction, PresenceInput, Request, Standing, Stopped,
    Swap,
};
pub use moment::{Moment, StoreTime};
pub use presence::Presence;
pub use rules::{ClockTrust, Push, Rules, Takeover};
pub use score::Score;
pub use seat::{Candidate, Identity, Incarnation, Leader, Life, Reading, Record, Seat, Token, Version};
pub use subscriptions::{Notification, PushDetail, SessionId, Subscriptions, Watching};
pub use timing::{DoesNotFit, Durations, Timing, TimingError};

#[cfg(test)]
mod watching_tests;
