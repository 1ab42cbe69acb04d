//! The seat: what a store keeps of an election, and what it can say about the holder.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Moment, StoreTime};

/// The number of a term. It only ever rises for a seat, so a resource that remembers the highest
/// one it has seen can turn away a leader that has been replaced: a fencing token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Below every token of a term.
    pub const ZERO: Self = Self(0);

    /// The highest token there is: the largest that databases with signed integers can hold.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The token with this number; numbers above [`Token::MAX`] become it.
    pub const fn new(number: u64) -> Self {
        if number > Self::MAX.0 { Self::MAX } else { Self(number) }
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token after this one, or `None` after the last.
    pub const fn next(self) -> Option<Self> {
        if self.0 >= Self::MAX.0 { None } else { Some(Self(self.0 + 1)) }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tells one start of a program from every other: random, and new at every start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u128);

impl Incarnation {
    /// The incarnation with these bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits themselves.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A participant in an election.
///
/// Two processes with the same `id` are still two candidates: it is the incarnation that counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// A name for people to read, never cut short.
    pub id: Arc<str>,
    /// What tells this start of it from every other.
    pub incarnation: Incarnation,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// What is written in a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds the seat; `None` once it was given up. A vacant record names no incarnation.
    pub holder: Option<Candidate>,
    /// The term's number. A vacant record keeps the last one, so that numbers never restart.
    pub token: Token,
    /// How long the seat stays taken without a renewal.
    pub lease: Duration,
    /// When the term began, in milliseconds of the holder's wall clock since 1970. For people to
    /// read; the protocol never looks at it.
    pub since_ms: Option<u64>,
    /// The candidate that the last holder has named to follow it.
    pub heir: Option<Candidate>,
    /// The holder's priority.
    pub priority: i32,
    /// Whether there are candidates of different priorities, so that a bidder asks who stands first.
    pub ranked: bool,
    /// What the holder says about itself.
    pub metadata: Arc<BTreeMap<String, String>>,
    /// New in every write, so that no two writes of a seat are ever equal.
    pub nonce: u64,
    /// Fields written by a newer version of this program: name, and value as JSON. Kept.
    pub unknown: Arc<BTreeMap<String, String>>,
}

impl Record {
    /// A record that says no more than who holds the seat, or that nobody does. Its nonce is zero.
    pub fn new(holder: Option<Candidate>, token: Token, lease: Duration) -> Self {
        Self {
            holder,
            token,
            lease,
            since_ms: None,
            heir: None,
            priority: 0,
            ranked: false,
            metadata: Arc::default(),
            nonce: 0,
            unknown: Arc::default(),
        }
    }

    /// Whether `incarnation` holds the seat.
    pub fn is_held_by(&self, incarnation: Incarnation) -> bool {
        self.holder.as_ref().is_some_and(|h| h.incarnation == incarnation)
    }

    /// Whether nobody holds the seat.
    pub fn is_vacant(&self) -> bool {
        self.holder.is_none()
    }
}

/// Names one write of a seat. Opaque: only the store that gave it can tell what it means.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Arc<str>);

impl Version {
    /// A version with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names one life of a store's data: another one means that the data may have gone backwards
/// (a Redis restarted or failed over, a PostgreSQL on another timeline).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    /// An identity with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the store itself can say about the holder of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nothing: only that versions change can be seen.
    Observe,
    /// Nothing, but that this very version was received at this moment, on our own clock: a store that
    /// is told of every change knows it before it is asked.
    Received {
        /// When.
        at: Moment,
    },
    /// By its own clock: what time it is there, and when the seat was last written.
    Clock {
        /// The store's time when it answered.
        now: StoreTime,
        /// The store's time when the seat was last written.
        renewed: StoreTime,
    },
    /// The holder's session lives.
    Held,
    /// The holder's session is gone.
    Over,
}

/// A seat as read from a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// What is written in it.
    pub record: Record,
    /// Which write that was.
    pub version: Version,
    /// What the store says about the holder.
    pub life: Life,
}

/// The answer to reading a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The seat, or `None` if there is no record of it.
    pub seat: Option<Seat>,
    /// Every token minted from this reading must be above this. [`Token::ZERO`] where the store
    /// has nothing to say.
    pub floor: Token,
    /// Which life of the store's data this is; `None` where a store has only ever one.
    pub identity: Option<Identity>,
}

impl Reading {
    /// A reading of a store without a floor for tokens or an identity.
    pub fn of(seat: Option<Seat>) -> Self {
        Self { seat, floor: Token::ZERO, identity: None }
    }
}

/// Who leads, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The candidate that holds the seat.
    pub candidate: Candidate,
    /// The number of its term.
    pub token: Token,
    /// When its term began, by its own wall clock, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// What it says about itself.
    pub metadata: Arc<BTreeMap<String, String>>,
}
