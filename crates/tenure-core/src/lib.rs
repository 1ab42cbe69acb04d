//! The engine of Tenure: leader election over a store that you already run.
//!
//! Use the crate `tenure`, which re-exports this one and has the stores. Store authors need [`SeatStore`] or [`Store`],
//! [`Notes`] and [`Promises`], and the crate `tenure-testkit`.
//!
//! In short: [`Elections`] owns an engine thread and a store. [`Elections::election`] returns a
//! [`Builder`], whose `start()` returns an [`Election`]; that candidate leads in [`Term`]s.

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
mod leader;
pub mod log;
pub mod memory;
mod name;
mod occasion;
mod options;
mod os;
pub mod record;
mod roster;
mod run;
mod seat_status;
pub mod span;
mod store;
#[cfg(feature = "metrics")]
pub mod telemetry;
#[cfg(not(feature = "metrics"))]
#[path = "telemetry/off.rs"]
mod telemetry;
mod term;

pub use builder::Builder;
pub use clock::{Clock, ManualClock};
pub use election::{Election, Observer, WeakElection};
pub use elections::{Elections, WeakElections};
pub use error::{ConfigError, Ended, Error, StoreError};
pub use events::{Event, EventKind, Events};
pub use health::{Health, Report};
pub use leader::Leader;
pub use name::SeatName;
pub use occasion::Occasion;
pub use options::{ElectionOptions, OnOverrun, OptionInfo, Settings, Word, did_you_mean, word};
pub use os::Lifeline;
pub use roster::{CandidateStatus, Metadata};
pub use run::WorkOutcome;
pub use seat_status::{ListedElection, SeatStatus};
pub use store::{
    Answers, Board, BoxFuture, Call, DynNotes, DynSeatStore, DynStore, Expect, Interest, InterestChange, LifeKind,
    News, Note, NoteWrite, Notes, Promises, Scope, SeatInterest, SeatStore, Seen, SingleSeat, Store, Write,
};
pub use tenure_protocol::{
    BatchLimits, Candidate, Change, Claim, ClockTrust, Crash, DataIdentity, DoesNotFit, Durations, EndReason, Fault,
    Incarnation, LastWill, Life, Moment, NoteState, Push, PushDetail, Reading, Record, Release, Score, Seat, SessionId,
    StoreTime, Swap, Takeover, Timing, TimingError, Token, Version,
};
pub use term::{Term, Work};
pub use tokio_util::sync::CancellationToken;
