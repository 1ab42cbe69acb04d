//! The model stores, and what they have in common.
//!
//! A store is a shelf with one seat on it. What it reports about the holder, and what it demands of a write,
//! depends on its kind: one file each.

mod clocked;
mod locked;
mod observed;
mod sessions;

use std::time::Duration;

use tenure_protocol::{DataIdentity, Incarnation, Life, Reading, Record, Request, Seat, Swap, Token, Version};

use crate::clock::Time;
use crate::plan::{Kind, Plan};

/// The number of a session.
pub(crate) type SessionId = u64;

/// A conditional write that reaches the store.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) expected: Option<Version>,
    pub(crate) record: Record,
    /// The identity of the store's data that the writer last read.
    pub(crate) identity: u32,
    /// The session that the writer relies on.
    pub(crate) session: Option<SessionId>,
}

/// The result of a write: a swap, or a refusal because the writer's own session has ended.
pub(crate) enum Written {
    Answer(Swap),
    NoSession,
}

/// A kind of store.
pub(crate) trait Model {
    fn shelf(&self) -> &Shelf;
    fn shelf_mut(&mut self) -> &mut Shelf;
    fn read(&self, now: Time) -> Reading;
    fn swap(&mut self, now: Time, write: &Write) -> Written;
    fn renew(&mut self, now: Time, write: &Write) -> Written;
    /// Frees the seat of a process that is dead.
    fn free(&mut self, now: Time, write: &Write) -> Written {
        self.swap(now, write)
    }
    /// Sets the store's clock forward or back.
    fn step_clock(&mut self, _by: i128) {}
    /// Handles the end of a process: the kernel frees its lock.
    fn process_gone(&mut self, _who: Incarnation) {}
    /// Opens a session that expires after this long without a heartbeat.
    fn open_session(&mut self, _now: Time, _ttl: Duration) -> SessionId {
        0
    }
    /// Keeps a session alive. Returns false if it has ended.
    fn beat(&mut self, _now: Time, _session: SessionId) -> bool {
        true
    }
    /// Ends a session early. Returns false if it had already ended.
    fn end_session(&mut self, _now: Time, _session: SessionId) -> bool {
        false
    }
    /// Returns the state of a session.
    fn session(&self, _now: Time, _session: SessionId) -> SessionState {
        SessionState::Alive { until: Time::MAX }
    }
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Alive {
        until: Time,
    },
    /// It got no heartbeat in time.
    Expired,
    /// The store ended it early.
    EndedEarly,
}

/// Creates the store for this plan.
pub(crate) fn build(plan: &Plan) -> Box<dyn Model> {
    let shelf = Shelf::new(plan);
    match plan.kind {
        Kind::Observe | Kind::Received => Box::new(observed::Observed::new(shelf)),
        Kind::ClockVouched | Kind::ClockObserve | Kind::ClockStore => {
            Box::new(clocked::Clocked::new(shelf, plan.store_ppm))
        }
        Kind::Lock => Box::new(locked::Locked::new(clocked::Clocked::new(shelf, plan.store_ppm))),
        Kind::SessionInstant | Kind::SessionSafe => {
            Box::new(sessions::Sessions::new(shelf, plan.store_ppm, plan.guards_sessions))
        }
    }
}

/// Returns the session that a version names, if any.
pub(crate) fn session_in(version: &Version) -> Option<SessionId> {
    version.as_str().strip_prefix('s')?.split('-').next()?.parse().ok()
}

/// A seat as the store keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) record: Record,
    pub(crate) version: Version,
    /// The time of the write on the store's clock.
    pub(crate) written: i128,
    /// The number of the write.
    pub(crate) number: u64,
}

impl Kept {
    pub(crate) fn holder(&self) -> Option<Incarnation> {
        self.record.holder.as_ref().map(|holder| holder.incarnation)
    }
}

/// The place where a seat is kept, with its whole history.
pub(crate) struct Shelf {
    pub(crate) seat: Option<Kept>,
    pub(crate) past: Vec<Kept>,
    pub(crate) identity: u32,
    /// The pending requests to the leader.
    pub(crate) board: Vec<Request>,
    /// All holders that were ever written into the seat, with their terms, including lost ones.
    pub(crate) ever_held: Vec<(Incarnation, Token)>,
    /// The number of all writes, including lost ones.
    pub(crate) writes: u64,
    /// How often the seat was set back to an earlier state.
    pub(crate) set_back: u32,
    own_versions: bool,
    has_floor: bool,
    has_identity: bool,
    renews_by_holder: bool,
}

impl Shelf {
    fn new(plan: &Plan) -> Self {
        Self {
            seat: None,
            past: Vec::new(),
            ever_held: Vec::new(),
            identity: 1,
            board: Vec::new(),
            writes: 0,
            set_back: 0,
            own_versions: plan.own_versions,
            has_floor: plan.has_floor,
            has_identity: plan.has_identity,
            renews_by_holder: plan.renews_by_holder,
        }
    }

    /// Returns the holder and term that the seat names now.
    pub(crate) fn names(&self) -> Option<(Option<Incarnation>, Token)> {
        self.seat.as_ref().map(|kept| (kept.holder(), kept.record.token))
    }

    pub(crate) fn has_floor(&self) -> bool {
        self.has_floor
    }

    fn reading(&self, now: Time, life: impl FnOnce(&Kept) -> Life) -> Reading {
        Reading {
            seat: self.seat.as_ref().map(|kept| Seat {
                record: kept.record.clone(),
                version: kept.version.clone(),
                life: life(kept),
            }),
            // Like a wall clock in milliseconds: above every token that was ever bid.
            floor: if self.has_floor { Token::new(now / 1_000_000) } else { Token::ZERO },
            identity: self.has_identity.then(|| DataIdentity::new(format!("life {}", self.identity))),
        }
    }

    /// Returns whether the writer has seen the record that it is about to replace, under this identity.
    fn expects_what_is_there(&self, write: &Write) -> bool {
        (!self.has_identity || write.identity == self.identity)
            && self.seat.as_ref().map(|kept| &kept.version) == write.expected.as_ref()
    }

    /// Returns whether the seat still names the writer and its term.
    fn is_the_writers(&self, write: &Write) -> bool {
        let mine = write.record.holder.as_ref().map(|holder| holder.incarnation);
        self.names() == Some((mine, write.record.token))
    }

    fn renewal_fits(&self, write: &Write) -> bool {
        if self.renews_by_holder { self.is_the_writers(write) } else { self.expects_what_is_there(write) }
    }

    fn put(&mut self, write: &Write, written: i128) -> Swap {
        self.writes += 1;
        let own = if self.own_versions { self.writes } else { write.record.nonce };
        let text = match write.session {
            Some(session) => format!("s{session}-{own:x}"),
            None => format!("v{own:x}"),
        };
        let kept = Kept { record: write.record.clone(), version: Version::new(text), written, number: self.writes };
        self.ever_held.extend(kept.holder().map(|holder| (holder, kept.record.token)));
        self.past.extend(self.seat.take());
        self.seat = Some(kept.clone());
        Swap::Done { version: kept.version, since: None, granted: None }
    }
}
