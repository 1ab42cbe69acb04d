//! The inputs and actions of the machines.

use std::sync::Arc;
use std::time::Duration;

use crate::{Candidate, Crash, Leader, Moment, Reading, Record, Release, Score, Seat, Token, Version};

/// Something that happened, which the caller passes to [`Machine::step`](crate::Machine::step).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The election starts. It is the first input.
    Start,
    /// The moment asked for with [`Action::WakeAt`] has come.
    Wake,
    /// The answer to [`Action::Read`]: the seat, or why the read failed.
    Read(Result<Reading, Fault>),
    /// The answer to [`Action::Swap`] or [`Action::Renew`], or why the write failed.
    Written(Result<Swap, Fault>),
    /// The store pushed a change of the seat that [`Action::Watch`] watches.
    Changed(Change),
    /// The store pushed the seat itself, because its term was released. A follower that had seen this term can bid
    /// without reading the seat first.
    Released(Arc<Release>),
    /// The session that holds the seat, as the seat was last seen, has ended. It is the session of another candidate, which
    /// can then bid without reading the seat first.
    HolderOver,
    /// Whether pushes arrive at present. If not, the machine ignores [`Rules::push`](crate::Rules::push) and
    /// looks for changes itself.
    Listening(bool),
    /// The answer to [`Action::ReadBoard`]: the pending requests, or none if the read failed.
    Requests(Vec<Request>),
    /// The answer to [`Action::ReadRoster`]: the candidates that stand, or none if the read failed.
    Roster(Vec<RosterEntry>),
    /// A health score that this candidate reports about itself.
    Health(Score),
    /// The user asks for one bid now. [`Action::BidSettled`] answers it.
    Bid,
    /// The user releases the seat. The candidate can bid for it again at any time.
    Release,
    /// The user's work is done: the candidate gives up the seat and lets other candidates go first for a moment.
    Yield,
    /// The user asks the candidate to hand over: it stays out of the race until another candidate has led, or
    /// for two leases.
    StepDown,
    /// The user asks the candidate to hand over to this heir.
    Transfer(Candidate),
    /// All work of the term with this token has returned.
    Drained(Token),
    /// The user ends the candidate's part in the election.
    Stop,
}

/// Something that the caller must do.
///
/// At most one of `Read`, `Swap` and `Renew` is in flight at a time, and each is answered exactly once. A lease
/// counts from the moment at which the machine returns the action. The caller can send the call later than
/// that; it answers a call that takes longer than [`Timing::call_timeout`](crate::Timing::call_timeout) after
/// it was sent with [`Fault::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the seat, and answer with [`Input::Read`].
    Read,
    /// Write the seat if it still has the expected version. Answer with [`Input::Written`].
    Swap {
        /// The version that the seat must have. `None`: the seat must not exist.
        expected: Option<Version>,
        /// The record to write, with a nonce of its own.
        record: Record,
    },
    /// Keep the seat that this candidate holds. The answer must be `Done` only if the seat still names this
    /// holder and term: a heartbeat alone would keep a leader whose seat was deleted.
    Renew {
        /// The version that the seat had when the machine last saw it.
        held: Version,
        /// The record to write, with the same holder and token.
        record: Record,
    },
    /// Report changes of the seat since it was seen like this. Replaces the previous watch.
    Watch {
        /// The seat as last seen, or `None` if it did not exist.
        seat: Option<Seat>,
        /// Whether to report requests on the board, too. Only a leader needs them.
        requests: bool,
    },
    /// Read the requests on the board and remove them. Answer with [`Input::Requests`].
    ReadBoard,
    /// Read which candidates stand. Answer with [`Input::Roster`].
    ReadRoster,
    /// Put this request to the leader on the board. It can get lost.
    Ask(Request),
    /// Step with [`Input::Wake`] at this moment. Replaces the previous wake.
    WakeAt(Moment),
    /// A term began. Until `until`, this candidate leads without further proof.
    Began {
        /// The token of the term, above those of all earlier terms.
        token: Token,
        /// When the term ends unless a renewal extends it.
        until: Moment,
    },
    /// A renewal succeeded, and the term now lasts until `until`.
    Extended {
        /// The token of the term that was extended.
        token: Token,
        /// When the term ends unless another renewal extends it.
        until: Moment,
    },
    /// The term is about to end, and work must wrap up. This candidate no longer counts as the leader.
    Ending {
        /// The token of the term that is ending, as in `Began`.
        token: Token,
        /// Why the term is ending: a request, a loss, or the time.
        why: EndReason,
        /// When the term ends, whether the work has returned or not.
        by: Moment,
    },
    /// The term is over, and no work may run under its token.
    Ended {
        /// The token of the term that ended, as in `Began`.
        token: Token,
        /// Why the term ended: the last reason, if there were several.
        why: EndReason,
    },
    /// Work of a term still runs although the term is over.
    Overran {
        /// The token of the term whose work still runs.
        token: Token,
    },
    /// The candidate became healthy enough to lead, or stopped being so. It starts as healthy.
    Fit(bool),
    /// The process of a leader died, and its last will has ended its term.
    Crashed(Arc<Crash>),
    /// The leader changed, as far as this candidate can see.
    Leader(Option<Leader>),
    /// The result of [`Input::Bid`]. Each `Bid` is answered once.
    BidSettled(Bid),
    /// A bid was refused because another write of the seat came first.
    BidLost,
    /// Calls to the store started to fail, or fail in another way than before.
    Failing(Fault),
    /// Calls to the store succeed again after [`Action::Failing`].
    Recovered,
    /// The election ended here, and no further action concerns its users. As far as the machine could make
    /// sure, the seat does not name this candidate.
    Stopped(Stopped),
}

/// The result of a conditional write. A condition that does not hold is a result, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The condition held, and the store wrote the record.
    Done {
        /// The version of the record that was written.
        version: Version,
        /// When the heartbeat was sent that proves the session of this write alive, or `None` if the write
        /// itself is the proof. The lease counts from this moment.
        since: Option<Moment>,
        /// The lease that the server granted, if it can be shorter than the lease that was asked for.
        granted: Option<Duration>,
    },
    /// Nothing was written: the seat has another version, or a live session holds it.
    Lost,
}

/// How a call to a store failed. The variants tell whether the call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call took no effect. Trying again can succeed.
    Refused,
    /// The call may have taken effect: the answer was lost or did not arrive in time.
    Unknown,
    /// The call took no effect, and will not until an operator intervenes: no permission, or a bad
    /// configuration.
    Denied,
}

/// A change that a store pushed to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The holder may have changed, or a request may be pending on the board.
    Look,
    /// A request may be pending on the board. The seat itself did not change.
    Request,
    /// The session on which this candidate holds its seat has ended.
    SessionOver,
}

/// A request to the leader, delivered through the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Step down from the term with this token, and hand it over.
    StepDown {
        /// The token of the term that the request is for. Later terms ignore it.
        token: Token,
        /// The candidate to hand over to, or `None` for any candidate.
        to: Option<Candidate>,
    },
    /// Hand over to a candidate of higher priority.
    Preempt {
        /// The token of the term that the request is for.
        token: Token,
        /// The candidate that asks, which becomes the heir.
        by: Candidate,
        /// The priority of that candidate. A leader of the same or a higher priority stays.
        priority: i32,
    },
    /// Mark the record as ranked, because candidates have different priorities.
    Rank {
        /// The token of the term that the request is for.
        token: Token,
    },
}

impl Request {
    /// Returns the token of the term that the request is for.
    pub const fn token(&self) -> Token {
        match self {
            Self::StepDown { token, .. } | Self::Preempt { token, .. } | Self::Rank { token } => *token,
        }
    }
}

/// An entry of the roster, which lists the candidates of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterEntry {
    /// The candidate, with the incarnation to name as heir.
    pub candidate: Candidate,
    /// The candidate's priority. Higher numbers go first.
    pub priority: i32,
    /// Whether the candidate is healthy enough to lead.
    pub fit: bool,
}

/// The result of one bid that the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bid {
    /// The candidate leads the term with this token.
    Won(Token),
    /// Another candidate leads, or this candidate is not allowed to stand at present.
    Taken,
    /// A call to the store failed, so that the candidate could not bid.
    Failed(Fault),
}

/// The reason why a term ended, for events, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The lease could not be renewed before its time was nearly up.
    NotRenewed,
    /// The seat names another holder or another term.
    SeatLost,
    /// The seat is no longer in the store: it was deleted, flushed, evicted, or lost with the store's data.
    SeatVanished,
    /// The session that held the seat has ended.
    SessionOver,
    /// A user or another candidate asked the leader to hand over.
    SteppedDown,
    /// The leader's health fell below the minimum.
    Unhealthy,
    /// The user released the seat, and may bid for it again.
    Released,
    /// The work of the term is done, and other candidates go first.
    Yielded,
    /// The user stopped the election on this candidate.
    Stopped,
    /// The engine ended unexpectedly, which is a bug. Nothing renews the seat any more.
    EngineGone,
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl EndReason {
    /// Returns whether the candidate keeps the seat while its work wraps up.
    pub const fn is_voluntary(self) -> bool {
        matches!(self, Self::SteppedDown | Self::Unhealthy | Self::Released | Self::Yielded | Self::Stopped)
    }

    /// Returns the reason as a phrase for logs and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotRenewed => "the lease could not be renewed in time",
            Self::SeatLost => "the seat names another holder",
            Self::SeatVanished => "the seat vanished from the store: it was deleted, evicted, or lost with its data",
            Self::SessionOver => "the session with the store has ended",
            Self::SteppedDown => "asked to step down",
            Self::Unhealthy => "the candidate is unhealthy",
            Self::Released => "released",
            Self::Yielded => "its work is done",
            Self::Stopped => "stopped",
            Self::EngineGone => "the engine ended unexpectedly, which is a bug",
        }
    }
}

impl EndReason {
    /// Returns a short name in snake case that never changes, for labels of metrics and for scripts.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotRenewed => "not_renewed",
            Self::SeatLost => "seat_lost",
            Self::SeatVanished => "seat_vanished",
            Self::SessionOver => "session_over",
            Self::SteppedDown => "stepped_down",
            Self::Unhealthy => "unhealthy",
            Self::Released => "released",
            Self::Yielded => "yielded",
            Self::Stopped => "stopped",
            Self::EngineGone => "engine_gone",
        }
    }
}

/// The reason why a machine stopped for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The user asked it to stop ([`Input::Stop`]).
    Asked,
    /// Another candidate has claimed the [`Occasion`](crate::Occasion), or the claim of this one is used up.
    Claimed,
    /// Calls to the store failed for longer than `give_up_after`.
    GaveUp {
        /// How long calls had failed when the machine gave up.
        after: Duration,
    },
}

/// Something that happened, which the caller passes to [`Presence::step`](crate::Presence::step).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceInput<S, N> {
    /// A candidate starts to stand for a seat, and is put on its roster.
    Announce {
        /// The seat that the candidate stands for from now on.
        seat: S,
        /// The lease of the election. The shortest lease of a process sets how often it reports itself.
        lease: Duration,
        /// Whether the candidate is healthy enough to lead.
        fit: bool,
        /// What the roster shows of the candidate, as the caller encodes it.
        notice: N,
    },
    /// The notice of a candidate changed. A change of `fit` is written at once, because other candidates go by
    /// it. Any other change waits for the next report of this process, so that frequent changes cost no extra
    /// calls.
    Change {
        /// The seat that was passed with `Announce`.
        seat: S,
        /// Whether the candidate is healthy enough to lead.
        fit: bool,
        /// What the roster shows of the candidate from now on.
        notice: N,
    },
    /// The candidate no longer stands for this seat.
    Withdraw(S),
    /// The answer to [`PresenceAction::SayPresent`], or why it failed.
    Present(Result<NoteState, Fault>),
    /// The answer to [`PresenceAction::Put`] or [`PresenceAction::Remove`] for this seat.
    NoticeWritten(S, Result<(), Fault>),
    /// The moment asked for with [`PresenceAction::WakeAt`] has come.
    Wake,
}

/// Something that a [`Presence`](crate::Presence) asks its caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceAction<S, N> {
    /// Write the note that says that this process is alive. It replaces the previous note, whose answer is no
    /// longer needed.
    SayPresent {
        /// How long the note lasts unless it is written again.
        lifetime: Duration,
        /// How long to wait for an answer before giving up.
        within: Duration,
    },
    /// Write a candidate's notice to the board of a seat.
    Put {
        /// The seat that the candidate stands for, as it was passed in.
        seat: S,
        /// The notice to write, as it was passed in.
        notice: N,
        /// How long the notice lasts unless it is written again.
        lifetime: Duration,
        /// How long to wait for an answer before giving up.
        within: Duration,
    },
    /// Remove a candidate's notice from the board of a seat.
    Remove {
        /// The seat that the candidate stood for, as it was passed in.
        seat: S,
        /// How long to wait for an answer before giving up.
        within: Duration,
    },
    /// Step with [`PresenceInput::Wake`] at this moment. Replaces the previous wake.
    WakeAt(Moment),
}

/// Whether a note existed in the store just before it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteState {
    /// It existed, and so do the notes that were written before it.
    Present,
    /// It did not exist: it was never written, was removed, has expired, or the store has lost it.
    Absent,
}
