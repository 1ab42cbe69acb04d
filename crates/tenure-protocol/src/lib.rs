//! The leader election of Tenure as a pure function of inputs and time.
//!
//! This crate has no clock, no network, no threads and no source of randomness: the caller passes time and
//! random seeds in as arguments. The same code runs in production, in tests whose clock is moved by hand, and
//! for millions of steps in the simulator.
//!
//! - [`Machine`] runs the election of one candidate: [`Input`]s go in, [`Action`]s come out.
//! - [`Admission`] batches the calls to the store of all candidates in a process, and decides when each batch
//!   leaves.
//! - [`Presence`] decides when a process announces itself and its candidates.
//! - [`Subscriptions`] decides which elections of a process a push from the store concerns.
//! - [`LastWill`] frees the seat of a process that has died.
//! - [`Seat`], [`Record`] and [`Life`] are what a store keeps of an election, and what it reports about the
//!   holder.
//! - [`Durations`] are scaled from the lease; [`Durations::check`] turns them into a [`Timing`] that fits
//!   together.

mod admission;
mod dice;
mod last_will;
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
pub use last_will::{LastWill, WillStep};
pub use machine::Machine;
pub use messages::{
    Action, Bid, Change, EndReason, Fault, Input, NoteState, PresenceAction, PresenceInput, Request, RosterEntry,
    Stopped, Swap,
};
pub use moment::{Moment, StoreTime};
pub use presence::Presence;
pub use rules::{ClockTrust, Occasion, Push, Rules, Takeover};
pub use score::Score;
pub use seat::{
    Candidate, Claim, Crash, DataIdentity, Incarnation, Leader, Life, Reading, Record, Release, Seat, Token, Version,
    shared_pairs,
};
pub use subscriptions::{Notification, PushDetail, SessionId, Subscriptions, Watching};
pub use timing::{DoesNotFit, Durations, Timing, TimingError};

#[cfg(test)]
mod watching_tests;
