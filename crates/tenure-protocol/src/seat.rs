//! The seat: the record that a store keeps of an election, and what the store reports about its holder.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::{Moment, StoreTime};

/// The number of a term: a fencing token.
///
/// The tokens of a seat only ever rise. A resource that remembers the highest token it has seen can therefore
/// reject the writes of a leader that has been replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token below that of every term, for a seat that has never been won.
    pub const ZERO: Self = Self(0);

    /// The highest token: the largest number that databases with signed 64-bit integers can hold.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// Returns the token with this number. Numbers above [`Token::MAX`] become [`Token::MAX`].
    pub const fn new(number: u64) -> Self {
        if number > Self::MAX.0 { Self::MAX } else { Self(number) }
    }

    /// Returns the number of this token, for comparing and for writing to a resource.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the token after this one, or `None` after [`Token::MAX`].
    pub const fn next(self) -> Option<Self> {
        if self.0 >= Self::MAX.0 { None } else { Some(Self(self.0 + 1)) }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Token {
    /// As [`Token::new`]: numbers above [`Token::MAX`] become it.
    fn from(number: u64) -> Self {
        Self::new(number)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl From<Token> for i64 {
    /// Every token fits into the signed integers of databases.
    fn from(token: Token) -> Self {
        token.0.cast_signed()
    }
}

/// Written as a number.
#[cfg(feature = "serde")]
impl serde::Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self::new)
    }
}

/// A random number that tells one start of a program from every other start, even with the same id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    // Two halves instead of a `u128`, whose alignment would make every struct and `Option` around it larger.
    high: u64,
    low: u64,
}

impl Incarnation {
    /// Returns the incarnation with these bits, for example from a record that was written earlier.
    pub const fn from_bits(bits: u128) -> Self {
        Self { high: (bits >> 64) as u64, low: bits as u64 }
    }

    /// Returns the bits of this incarnation, for example to write them into a record.
    pub const fn to_bits(self) -> u128 {
        ((self.high as u128) << 64) | self.low as u128
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.to_bits())
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A participant in an election.
///
/// Two processes with the same `id` are two candidates, because their incarnations differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Candidate {
    /// A name for people to read. It is stored whole, never truncated.
    pub id: Arc<str>,
    /// The number that tells this start of the candidate from every other start.
    pub incarnation: Incarnation,
}

impl Candidate {
    /// Returns the id, the name for people to read.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// The content of a seat, as a candidate writes it and the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The candidate that holds the seat, or `None` after a release. A vacant record names no incarnation.
    pub holder: Option<Candidate>,
    /// The number of the term. A vacant record keeps the last token, so that numbers never restart.
    pub token: Token,
    /// How long the seat stays taken without a renewal, as the holder asked for.
    pub lease: Duration,
    /// When the term began, in milliseconds since 1970 on the holder's wall clock. It is for people to read;
    /// the protocol never uses it.
    pub since_ms: Option<u64>,
    /// The candidate that the last holder named as its successor, in a vacant record.
    pub heir: Option<Candidate>,
    /// The priority of the holder, or 0 in a vacant record.
    pub priority: i32,
    /// Whether the candidates have different priorities. If so, a bidder reads the roster before it bids.
    pub ranked: bool,
    /// Key-value pairs that the holder shows to people, from [`Rules::metadata`](crate::Rules::metadata).
    pub metadata: Arc<BTreeMap<String, String>>,
    /// A random number, new in every write, so that no two writes of a seat are equal.
    pub nonce: u64,
    /// The last occasion that a candidate claimed. Later terms and releases keep it.
    pub claim: Option<Arc<Claim>>,
    /// The last term that ended with a crash of its leader, and was ended by a last will. Later terms and releases
    /// keep it.
    pub crash: Option<Arc<Crash>>,
    /// Fields that a newer version of this program wrote: name, and value as JSON. They are kept.
    pub unknown: Arc<BTreeMap<String, String>>,
}

impl Record {
    /// Creates a record with a holder, or a vacant one. Its nonce is zero, and it has no priority and no
    /// metadata.
    pub fn new(holder: Option<Candidate>, token: Token, lease: Duration) -> Self {
        Self {
            holder,
            token,
            lease,
            since_ms: None,
            heir: None,
            priority: 0,
            ranked: false,
            metadata: shared_pairs(BTreeMap::new()),
            nonce: 0,
            claim: None,
            crash: None,
            unknown: shared_pairs(BTreeMap::new()),
        }
    }

    /// Returns whether the candidate with this incarnation holds the seat.
    pub fn is_held_by(&self, incarnation: Incarnation) -> bool {
        self.holder.as_ref().is_some_and(|h| h.incarnation == incarnation)
    }

    /// Returns the holder and the term that the record names.
    pub fn names(&self) -> (Option<Incarnation>, Token) {
        (self.holder.as_ref().map(|holder| holder.incarnation), self.token)
    }

    /// Returns whether the record names no holder, as after a release.
    pub fn is_vacant(&self) -> bool {
        self.holder.is_none()
    }
}

/// Returns these pairs for records and rules. Empty ones share their memory, because a process can have very many.
pub fn shared_pairs(pairs: BTreeMap<String, String>) -> Arc<BTreeMap<String, String>> {
    static NONE: LazyLock<Arc<BTreeMap<String, String>>> = LazyLock::new(Arc::default);
    if pairs.is_empty() { NONE.clone() } else { Arc::new(pairs) }
}

/// The claim of an [`Occasion`](crate::Occasion) in a record. The write that wins the seat makes it, so no two
/// candidates claim the same occasion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The time of the occasion, in milliseconds since 1970.
    pub at_ms: u64,
    /// The id of the candidate that claimed it.
    pub by: Arc<str>,
    /// The token of the term in which it was claimed.
    pub token: Token,
    /// Whether the work of that term returned before the term ended.
    pub done: bool,
}

/// A term that a last will has ended, because the process of its leader died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The candidate that led.
    pub of: Candidate,
    /// The token of the term.
    pub token: Token,
    /// The process that executed the last will, as a text for people.
    pub by: Arc<str>,
}

/// The name of one write of a seat. It is opaque: only the store that issued it can interpret it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Arc<str>);

impl Version {
    /// Creates a version from a text that the store chooses.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text that the store gave this version.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of one history of a store's data. A new identity means that the data may have gone backwards, for
/// example because a Redis server failed over or a PostgreSQL server switched to another timeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DataIdentity(Arc<str>);

impl DataIdentity {
    /// Creates an identity from a text that the store chooses.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text that the store gave this identity.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the store itself reports about the holder of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nothing: a follower can only see that versions change.
    Observe,
    /// This version reached this process at a known time. A store that is notified of every change receives the
    /// version before it is asked for it.
    Received {
        /// When the store's client received this version, on the clock of this process.
        at: Moment,
    },
    /// The store's clock: its current time, and when the seat was last written.
    Clock {
        /// The time on the store's clock when it answered.
        now: StoreTime,
        /// The time on the store's clock when the seat was last written.
        renewed: StoreTime,
    },
    /// The session that holds the seat is alive, so the seat is taken.
    Held,
    /// The session that held the seat has ended.
    Over,
}

/// A seat as it was read from a store, with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The content of the seat at the time of the read.
    pub record: Record,
    /// The version to expect in a write that replaces this record.
    pub version: Version,
    /// What the store reports about the holder at the time of the read.
    pub life: Life,
}

/// The answer of a store to reading a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The seat, or `None` if the store has no record of it.
    pub seat: Option<Seat>,
    /// A bid that is based on this reading must use a token above this one. [`Token::ZERO`] if the store has no
    /// such lower bound.
    pub floor: Token,
    /// The identity of the data that was read, or `None` if the store's data never changes its identity.
    pub identity: Option<DataIdentity>,
}

impl Reading {
    /// Creates a reading of a store that has neither a token floor nor an identity.
    pub fn of(seat: Option<Seat>) -> Self {
        Self { seat, floor: Token::ZERO, identity: None }
    }
}

/// A seat whose term was just released, as a store pushed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The vacant record, with the token of the term that was released.
    pub record: Record,
    /// The version to expect in a write that replaces this record.
    pub version: Version,
    /// The identity of the data that the seat belongs to, as [`Reading::identity`].
    pub identity: Option<DataIdentity>,
}

/// The leader of an election, as a candidate last saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The candidate that holds the seat, with its incarnation.
    pub candidate: Candidate,
    /// The number of the leader's term, its fencing token.
    pub token: Token,
    /// When the term began, in milliseconds since 1970 on the leader's wall clock.
    pub since_ms: Option<u64>,
    /// Key-value pairs that the leader shows to people.
    pub metadata: Arc<BTreeMap<String, String>>,
}
