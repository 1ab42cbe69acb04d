//! What goes into the machines and what comes out of them.

use std::time::Duration;

use crate::{Candidate, Leader, Moment, Reading, Record, Score, Seat, Token, Version};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Begin.
    Start,
    /// The moment asked for with [`Action::WakeAt`] has come.
    Wake,
    /// The answer to [`Action::Read`].
    Read(Result<Reading, Fault>),
    /// The answer to [`Action::Swap`] or [`Action::Renew`].
    Written(Result<Swap, Fault>),
    /// The store has news about the seat that [`Action::Watch`] asked for.
    Changed(Change),
    /// Whether the store's push can be counted on now, as far as the rules say that it can.
    Hears(bool),
    /// The answer to [`Action::ReadBoard`]: the requests that lay there, none if it failed.
    Requests(Vec<Request>),
    /// The answer to [`Action::ReadRoster`]: who stands, nobody if it failed.
    Roster(Vec<Standing>),
    /// How well this candidate is, by its own account.
    Health(Score),
    /// The user asks for one bid now, answered by [`Action::BidSettled`].
    Bid,
    /// The user lets go of the seat, and may ask for it again at any time.
    Release,
    /// The user hands over: another shall lead.
    StepDown,
    /// The user hands over to this candidate.
    Transfer(Candidate),
    /// All work of this term has returned.
    Drained(Token),
    /// The user wants no part in the election any more.
    Stop,
}

/// What is to be done.
///
/// At most one of `Read`, `Swap` and `Renew` is under way at a time, and each is answered exactly
/// once. A lease counts from when it was asked for. A call that took longer than
/// [`Timing::call_timeout`](crate::Timing::call_timeout) since it was sent, which may be later, is answered with
/// [`Fault::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the seat.
    Read,
    /// Write the seat if its version is still the expected one.
    Swap {
        /// The version it must have; `None`: there must be no seat.
        expected: Option<Version>,
        /// What to write.
        record: Record,
    },
    /// Keep the seat that we hold. `Done` says that the seat still named this holder and term: a
    /// heartbeat alone would keep a leader whose seat was deleted.
    Renew {
        /// The version it was last seen to have.
        held: Version,
        /// What to write.
        record: Record,
    },
    /// From now on, tell of changes since the seat was seen like this. Replaces an earlier watch.
    Watch {
        /// The seat as last seen; `None`: there was none.
        seat: Option<Seat>,
        /// Whether requests on the board are news, too.
        requests: bool,
    },
    /// Read the requests on the board, and clear it of them.
    ReadBoard,
    /// Read who stands.
    ReadRoster,
    /// Ask this of the leader, by way of the board. It may get lost.
    Ask(Request),
    /// Step with [`Input::Wake`] at this moment. Replaces an earlier one.
    WakeAt(Moment),
    /// A term began, and may be counted on until this moment.
    Began {
        /// Its number.
        token: Token,
        /// When it ends unless extended.
        until: Moment,
    },
    /// The term may be counted on until this moment.
    Extended {
        /// Its number.
        token: Token,
        /// When it ends unless extended.
        until: Moment,
    },
    /// The term is about to end: work shall wrap up. It does not lead any more.
    Ending {
        /// Its number.
        token: Token,
        /// Why it ends.
        why: EndReason,
        /// When it ends, whether the work has returned or not.
        by: Moment,
    },
    /// The term is over.
    Ended {
        /// Its number.
        token: Token,
        /// Why it ended.
        why: EndReason,
    },
    /// Work of a term is still running though the term is over.
    Overran {
        /// The number of the term that is over.
        token: Token,
    },
    /// Whether this candidate is well enough to lead has changed. It is to begin with.
    Fit(bool),
    /// Who leads has changed, as far as can be seen from here.
    Leader(Option<Leader>),
    /// What came of [`Input::Bid`].
    BidSettled(Bid),
    /// The store fails, or fails in another way than before.
    Failing(Fault),
    /// The store works again.
    Recovered,
    /// Nothing more will come. The seat does not name us, as far as could be made sure.
    Stopped(Stopped),
}

/// The answer to a conditional write: a refused condition is a value, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Written.
    Done {
        /// The version of what was written.
        version: Version,
        /// When the heartbeat was sent that proves the session alive which this write counts on;
        /// `None` where the write itself is the proof.
        since: Option<Moment>,
        /// The lease that the server granted, where that can be less than was asked for.
        granted: Option<Duration>,
    },
    /// Not written: the seat has another version, or a living session holds it.
    Lost,
}

/// How a call to a store failed: did it happen?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not happen; it may the next time.
    Refused,
    /// It may have happened.
    Unknown,
    /// It did not happen and never will as things are: no permission, a bad configuration.
    Denied,
}

/// News from a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The holder may have changed, or a request lies on the board.
    Look,
    /// A request may lie on the board.
    Request,
    /// Our own session is over.
    SessionOver,
}

/// What someone asks of the leader, by way of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// To hand over the term with this number.
    StepDown {
        /// The term that is meant; a request outlives no term.
        token: Token,
        /// Whom to; `None`: whoever takes it.
        to: Option<Candidate>,
    },
    /// To hand over to a candidate of higher priority.
    Preempt {
        /// The term that is meant.
        token: Token,
        /// Who asks.
        by: Candidate,
        /// Its priority. A leader of the same or a higher one stays.
        priority: i32,
    },
    /// To note in the seat that there are priorities to go by.
    Rank {
        /// The term that is meant.
        token: Token,
    },
}

impl Request {
    /// The term that is meant.
    pub const fn token(&self) -> Token {
        match self {
            Self::StepDown { token, .. } | Self::Preempt { token, .. } | Self::Rank { token } => *token,
        }
    }
}

/// A candidate as it stands on the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Who it is.
    pub candidate: Candidate,
    /// The higher, the sooner its turn.
    pub priority: i32,
    /// Whether it is well enough to lead.
    pub fit: bool,
}

/// What came of one bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bid {
    /// It leads, with this term.
    Won(Token),
    /// Another leads, or this candidate may not stand now.
    Taken,
    /// The store failed.
    Failed(Fault),
}

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The lease could not be renewed in time.
    NotRenewed,
    /// The seat was found to name another holder or term.
    SeatLost,
    /// The seat is no longer in the store: deleted, flushed, evicted, or lost with the store's data.
    SeatVanished,
    /// The session that the seat was held on is over.
    SessionOver,
    /// Asked to hand over.
    SteppedDown,
    /// It is not well enough to lead.
    Unhealthy,
    /// Let go by its user.
    Released,
    /// The election was stopped here.
    Stopped,
    /// The engine is gone, which is a bug: nobody keeps the seat any more.
    EngineGone,
}

impl EndReason {
    /// Whether the seat is still ours while the work wraps up.
    pub const fn is_voluntary(self) -> bool {
        matches!(self, Self::SteppedDown | Self::Unhealthy | Self::Released | Self::Stopped)
    }

    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotRenewed => "the lease could not be renewed in time",
            Self::SeatLost => "the seat names another holder",
            Self::SeatVanished => "the seat vanished from the store: it was deleted, evicted, or lost with its data",
            Self::SessionOver => "the session with the store is over",
            Self::SteppedDown => "asked to step down",
            Self::Unhealthy => "not well enough to lead",
            Self::Released => "released",
            Self::Stopped => "stopped",
            Self::EngineGone => "the engine is gone",
        }
    }
}

/// Why a machine has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It was asked to.
    Asked,
    /// The store failed for longer than `give_up_after`.
    GaveUp {
        /// How long it failed.
        after: Duration,
    },
}

/// What happened that a [`Presence`](crate::Presence) should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceInput<S, N> {
    /// A candidate begins to stand for this seat.
    Announce {
        /// The seat.
        seat: S,
        /// Its lease.
        lease: Duration,
        /// Whether it is well enough to lead.
        fit: bool,
        /// What it says.
        notice: N,
    },
    /// What a candidate says has changed. Whether it is well enough to lead is told at once, as others go by it; the
    /// rest waits for the next time that this process says it is there, so that it costs no more however often it
    /// changes.
    Change {
        /// The seat.
        seat: S,
        /// Whether it is well enough to lead.
        fit: bool,
        /// What it says.
        notice: N,
    },
    /// A candidate stands no more.
    Withdraw(S),
    /// The answer to [`PresenceAction::SayPresent`].
    Present(Result<NoteState, Fault>),
    /// The answer to [`PresenceAction::Put`] or [`PresenceAction::Remove`].
    Notification(S, Result<(), Fault>),
    /// The moment asked for with [`PresenceAction::WakeAt`] has come.
    Wake,
}

/// What a [`Presence`](crate::Presence) wants to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceAction<S, N> {
    /// Put the note that says that this process is there. Replaces an earlier one, whose answer is of no interest any
    /// more.
    SayPresent {
        /// For so long.
        lifetime: Duration,
        /// How long an answer is waited for.
        within: Duration,
    },
    /// Put this on the board of a seat.
    Put {
        /// The seat.
        seat: S,
        /// What to put there.
        notice: N,
        /// For so long.
        lifetime: Duration,
        /// How long an answer is waited for.
        within: Duration,
    },
    /// Take what was put there off the board of a seat.
    Remove {
        /// The seat.
        seat: S,
        /// How long an answer is waited for.
        within: Duration,
    },
    /// Step with [`PresenceInput::Wake`] at this moment. Replaces an earlier one.
    WakeAt(Moment),
}

/// Whether a note was there when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteState {
    /// It was, and so are the notes that were written before it.
    Present,
    /// It was not, or no longer: it was never put, was removed, has expired, or the store has lost it.
    Absent,
}
