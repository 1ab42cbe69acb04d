//! A node: the process of one candidate, with its clock, its machine and its work.

use std::collections::{BTreeMap, VecDeque};

use tenure_protocol::{
    Candidate, EndReason, Incarnation, Input, Moment, PresenceInput, RosterEntry, Rules, Seat, Token, Version,
};

use crate::clock::{LocalClock, Time};
use crate::driven::{Driven, DrivenPresence};
use crate::health::Health;
use crate::store::SessionId;
use crate::world::{Received, WritePush};

/// The number of a node.
pub(crate) type NodeNr = usize;

/// One process that stands for election.
pub(crate) struct Node {
    /// The number of starts. Events for an earlier start are ignored.
    pub(crate) life: u32,
    pub(crate) me: Candidate,
    pub(crate) clock: LocalClock,
    pub(crate) rules: Rules,
    /// The number of the occasion for which it stands.
    pub(crate) occasion: Option<u64>,
    /// `None`: the process does not run.
    pub(crate) machine: Option<Box<dyn Driven>>,
    /// How the process announces itself.
    pub(crate) announcer: Announcer,
    /// Its election has ended, but the process keeps running with its session, and may start another election.
    pub(crate) resting: bool,
    pub(crate) paused: bool,
    /// Events that arrived during a pause.
    pub(crate) inbox: VecDeque<Arrival>,
    pub(crate) term: Option<Published>,
    pub(crate) work: Vec<Work>,
    /// The call in flight.
    pub(crate) call: Option<u64>,
    pub(crate) watch: Option<Watch>,
    pub(crate) received: Received,
    pub(crate) wake: Option<Moment>,
    /// When it was asked to stop.
    pub(crate) asked_to_stop: Option<Time>,
    pub(crate) session: Option<OwnSession>,
    /// The holder and term that it last saw. `None` before its first look.
    pub(crate) seen: Option<Option<(Option<Incarnation>, Token)>>,
    /// The highest token that it ever saw.
    pub(crate) highest_seen: Token,
    /// The version of the seat that it last saw.
    pub(crate) seen_version: Option<Version>,
    /// The identity of the store's data that it last read.
    pub(crate) identity: u32,
    /// The version of the last release that was pushed to it since then, and the identity of that data.
    pub(crate) pushed: Option<(Version, u32)>,
    /// Writes and reads that failed since the last success that matters: a write of a leader, or any answer to
    /// a follower.
    pub(crate) failed: (u32, u32),
    /// When it is no longer cut off from the store.
    pub(crate) cut_off_until: Time,
    pub(crate) health: Health,
    /// When it will have recovered from its last trouble, as far as can be predicted.
    pub(crate) untroubled_at: Time,
}

/// How a process announces itself, with counts for the invariants.
pub(crate) struct Announcer {
    pub(crate) presence: Box<dyn DrivenPresence>,
    /// The calls in flight by number, and whether each of them reports the process.
    pub(crate) calls: BTreeMap<u64, bool>,
    pub(crate) wake: Option<Moment>,
    /// The fitness that is announced, if its candidate stands, and since when.
    pub(crate) says: (Option<bool>, Time),
    /// How often it wrote a notice, and how often it had a reason to.
    pub(crate) puts: u32,
    pub(crate) reasons: u32,
    /// How often it reported the process, how often that failed, and when it did so first.
    pub(crate) reports: u32,
    pub(crate) failures: u32,
    pub(crate) began: Option<Time>,
    /// The store has lost its notes, and the process does not know.
    pub(crate) lost: bool,
}

impl Announcer {
    pub(crate) fn new(presence: Box<dyn DrivenPresence>) -> Self {
        Self {
            presence,
            calls: BTreeMap::new(),
            wake: None,
            says: (None, 0),
            puts: 0,
            reasons: 0,
            reports: 0,
            failures: 0,
            began: None,
            lost: false,
        }
    }
}

/// A term as the node's users see it.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) token: Token,
    pub(crate) until: Moment,
    pub(crate) ending: Option<EndReason>,
    /// The session that the term rests on.
    pub(crate) session: Option<SessionId>,
    /// It was notified by the store, or has read, that the seat is no longer its own.
    pub(crate) knows_of_loss: bool,
}

/// Work of one term.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) token: Token,
    /// It can be dropped at any moment. Otherwise it runs until it returns.
    pub(crate) cuttable: bool,
}

/// What a node watches.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) seat: Option<Seat>,
    pub(crate) requests: bool,
}

/// The session that a node keeps.
#[derive(Clone, Debug)]
pub(crate) struct OwnSession {
    pub(crate) id: SessionId,
    /// The send of the last heartbeat that was answered.
    pub(crate) proved: Moment,
}

/// An event that reaches a process.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    Wake(Moment),
    Answer {
        call: u64,
        input: Input,
    },
    TimeOut {
        call: u64,
    },
    Notification(Input),
    /// The session of the holder with this term has ended.
    HolderOver(Option<(Option<Incarnation>, Token)>),
    /// The wake of its presence is due.
    PresenceWake(Moment),
    /// The answer to a call of its presence.
    PresenceAnswer {
        call: u64,
        input: PresenceInput<(), RosterEntry>,
    },
    /// A notification of a write.
    Notified(WritePush),
    /// Work has returned.
    Returned(Token),
    Beat {
        session: SessionId,
        sent: Moment,
        alive: bool,
    },
}

impl Node {
    /// Returns the term that the node's users rely on at this true time.
    pub(crate) fn current(&self, at: Time) -> Option<&Published> {
        self.term.as_ref().filter(|term| self.clock.read(at) < term.until)
    }

    /// Returns whether it leads. A term that is ending does not count.
    pub(crate) fn leads(&self, at: Time) -> bool {
        self.current(at).is_some_and(|term| term.ending.is_none())
    }

    /// Returns whether its election runs.
    pub(crate) fn runs(&self) -> bool {
        self.machine.is_some() && !self.resting
    }

    /// Returns whether its election has ended and has nothing left to do, while its process is alive.
    pub(crate) fn has_ended(&self) -> bool {
        self.machine.is_none() && self.resting
    }

    /// Returns whether its process is alive.
    pub(crate) fn lives(&self) -> bool {
        self.machine.is_some() || self.resting
    }
}
