//! The engine of Tenure: leader election over a store you already have.
//!
//! Most users want the crate `tenure`, which re-exports this one. Store authors want [`SeatStore`] or [`Store`],
//! [`Board`] and [`Promises`], and the crate `tenure-testkit`.

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
mod look;
pub mod memory;
mod name;
mod options;
mod os;
pub mod record;
mod roster;
mod run;
pub mod span;
mod store;
mod term;
pub mod url;

pub use builder::Builder;
pub use clock::{Clock, ManualClock};
pub use election::{Election, Observer, WeakElection};
pub use elections::{Elections, WeakElections};
pub use error::{Ended, Error, StoreError};
pub use events::{Event, Events};
pub use health::{Health, Report};
pub use look::Look;
pub use name::SeatName;
pub use options::{ElectionOptions, JudgeOption, OnOverrun, Settings, TakeoverOption};
pub use os::Lifeline;
pub use roster::{CandidateStatus, Metadata};
pub use store::{
    Answers, Board, BoxFuture, Call, Delta, DynBoard, DynSeatStore, DynStore, Expect, Interest, LifeKind, News, Note,
    NoteKind, OneByOne, Promises, Scope, SeatStore, Seen, Store, Wanted, Write,
};
pub use tenure_protocol::{
    Attended, Candidate, Change, DoesNotFit, Durations, Fault, Identity, Incarnation, Judge, Leader, Life, Moment,
    Most, Push, Reading, Record, Said, Score, Seat, Session, StoreTime, Swap, Takeover, Timing, TimingError, Token,
    Version, Why,
};
pub use term::{Term, Work};
pub use tokio_util::sync::CancellationToken;
