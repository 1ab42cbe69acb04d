//! A node: one candidate's process, with its clock, its machine and its work.

use std::collections::{BTreeMap, VecDeque};

use tenure_protocol::{
    Candidate, EndReason, Incarnation, Input, Moment, PresenceInput, Rules, Seat, Standing, Token, Version,
};

use crate::clock::{LocalClock, Time};
use crate::driven::{Driven, Tells};
use crate::health::Health;
use crate::store::SessionId;
use crate::world::{Hearing, News};

/// Which node.
pub(crate) type NodeNr = usize;

/// One process that stands for election.
pub(crate) struct Node {
    /// Counts the starts; what was meant for an earlier one is ignored.
    pub(crate) life: u32,
    pub(crate) me: Candidate,
    pub(crate) clock: LocalClock,
    pub(crate) rules: Rules,
    /// `None`: the process does not run.
    pub(crate) machine: Option<Box<dyn Driven>>,
    /// What its process tells of itself.
    pub(crate) told: Telling,
    /// Its election has ended, and the process lives on, with its session: it may start another one.
    pub(crate) resting: bool,
    pub(crate) paused: bool,
    /// What came in during a pause.
    pub(crate) inbox: VecDeque<Arrival>,
    pub(crate) term: Option<Published>,
    pub(crate) work: Vec<Work>,
    /// The call under way.
    pub(crate) call: Option<u64>,
    pub(crate) watch: Option<Watch>,
    pub(crate) hearing: Hearing,
    pub(crate) wake: Option<Moment>,
    /// When it was asked to stop, and how long it may take from then on.
    pub(crate) asked_to_stop: Option<Time>,
    pub(crate) session: Option<OwnSession>,
    /// The holder and term that it last saw; `None` before its first look.
    pub(crate) seen: Option<Option<(Option<Incarnation>, Token)>>,
    /// The highest token that it ever saw.
    pub(crate) highest_seen: Token,
    /// The version of the seat that it last saw.
    pub(crate) seen_version: Option<Version>,
    /// The life of the store's data that it last saw.
    pub(crate) identity: u32,
    /// Writes and reads that failed since the last success that matters: a write of a leader, any answer
    /// to a follower.
    pub(crate) failed: (u32, u32),
    /// Cut off from the store until then.
    pub(crate) cut_off_until: Time,
    pub(crate) health: Health,
    /// By when the last thing that troubled it is past, as far as can be said beforehand.
    pub(crate) untroubled_at: Time,
}

/// What a process tells of itself, and what it waits for.
pub(crate) struct Telling {
    pub(crate) presence: Box<dyn Tells>,
    /// What is under way, by the numbers of the calls: whether it says that the process is there.
    pub(crate) calls: BTreeMap<u64, bool>,
    pub(crate) wake: Option<Moment>,
    /// Whether its candidate is said to be well enough, if it stands, and since when that is said.
    pub(crate) says: (Option<bool>, Time),
    /// How often it has put a notice, and how often it had a reason to.
    pub(crate) puts: u32,
    pub(crate) reasons: u32,
    /// How often it has said that it is there, how often that failed, and when it first did.
    pub(crate) attends: u32,
    pub(crate) failures: u32,
    pub(crate) began: Option<Time>,
    /// The store has lost what it has announced, and has not told so.
    pub(crate) lost: bool,
}

impl Telling {
    pub(crate) fn new(presence: Box<dyn Tells>) -> Self {
        Self {
            presence,
            calls: BTreeMap::new(),
            wake: None,
            says: (None, 0),
            puts: 0,
            reasons: 0,
            attends: 0,
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
    /// The session that it stands on.
    pub(crate) session: Option<SessionId>,
    /// It has been told, by the store's news or by a reading, that the seat is no longer its own.
    pub(crate) told_lost: bool,
}

/// Work of one term.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) token: Token,
    /// Can be dropped at any moment; otherwise it runs until it returns by itself.
    pub(crate) cuttable: bool,
}

/// What the node is told of.
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

/// Something that reaches the process.
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
    /// The process is to tell again of itself.
    TellAgain(Moment),
    /// What came of that.
    HasTold {
        call: u64,
        input: PresenceInput<(), Standing>,
    },
    /// News of a write.
    Heard(News),
    /// The work returned.
    Returned(Token),
    Beat {
        session: SessionId,
        sent: Moment,
        alive: bool,
    },
}

impl Node {
    /// The term that the node's users may count on at this true time.
    pub(crate) fn current(&self, at: Time) -> Option<&Published> {
        self.term.as_ref().filter(|term| self.clock.read(at) < term.until)
    }

    /// Whether it leads: a term that is about to end does not count.
    pub(crate) fn leads(&self, at: Time) -> bool {
        self.current(at).is_some_and(|term| term.ending.is_none())
    }

    /// Whether its election runs.
    pub(crate) fn runs(&self) -> bool {
        self.machine.is_some() && !self.resting
    }

    /// Whether its election has ended, with nothing left to do, though its process lives.
    pub(crate) fn has_ended(&self) -> bool {
        self.machine.is_none() && self.resting
    }

    /// Whether its process lives.
    pub(crate) fn lives(&self) -> bool {
        self.machine.is_some() || self.resting
    }
}
