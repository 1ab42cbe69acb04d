//! The engine of Tenure: leader election over a store you already have.
//!
//! Most users want the crate `tenure`, which re-exports this one. Store authors want [`SeatStore`] or [`Store`],
//! [`Notes`] and [`Promises`], and the crate `tenure-testkit`.

mod builder;
mod clock;
mod driver;
mod election;
mod elections;
mod error;
mod events;
mod handlers;
mod health;
pub mod layers;
pub mod log;
pub mod memory;
mod name;
mod options;
mod os;
pub mod record;
mod roster;
mod run;
mod seat_status;
pub mod span;
mod store;
mod term;

pub use builder::Builder;
pub use clock::{Clock, ManualClock};
pub use election::{Election, Observer, WeakElection};
pub use elections::{Elections, WeakElections};
pub use error::{Ended, Error, StoreError};
pub use events::{Event, Events};
pub use health::{Health, Report};
pub use name::SeatName;
pub use options::{ElectionOptions, OnOverrun, OptionInfo, Settings, Word, word};
pub use os::Lifeline;
pub use roster::{CandidateStatus, Metadata};
pub use seat_status::SeatStatus;
pub use store::{
    Answers, Board, BoxFuture, Call, DynNotes, DynSeatStore, DynStore, Expect, Interest, InterestChange, LifeKind,
    News, Note, NoteWrite, Notes, Promises, Scope, SeatInterest, SeatStore, Seen, SingleSeat, Store, Write,
};
pub use tenure_protocol::{
    BatchLimits, Candidate, Change, ClockTrust, DoesNotFit, Durations, EndReason, Fault, Identity, Incarnation, Leader,
    Life, Moment, NoteState, Push, PushDetail, Reading, Record, Score, Seat, SessionId, StoreTime, Swap, Takeover,
    Timing, TimingError, Token, Version,
};
pub use term::{Term, Work};
pub use tokio_util::sync::CancellationToken;
