//! What a store promises, as data.

use std::fmt;
use std::time::Duration;

use tenure_protocol::{BatchLimits, ClockTrust, Push, Takeover};

/// What a store promises, as data.
///
/// Write it as `Promises { push: Push::Hint, ..Promises::of("redis") }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The store's name, as in URLs.
    pub store: &'static str,
    /// How it tells that a holder is gone.
    pub life: LifeKind,
    /// How much its clock is believed, unless an election says otherwise.
    pub clock_trust: ClockTrust,
    /// How soon a seat is taken whose session is over, unless an election says otherwise.
    pub takeover: Takeover,
    /// Whether a session cannot end while its process lives, so that its end is proof.
    pub over_is_proof: bool,
    /// How much its push can be counted on.
    pub push: Push,
    /// How many seats it reads in one call, and how many such calls may be under way at once.
    pub reads: BatchLimits,
    /// How many seats it writes in one call, and how many such calls may be under way at once.
    pub writes: BatchLimits,
    /// Whether one heartbeat serves all seats of a process.
    pub shared_heartbeat: bool,
    /// What survives: in words, for people.
    pub durability: &'static str,
    /// The shortest lease that it can keep.
    pub min_lease: Duration,
    /// Leases must be multiples of this (a second, for stores that count in seconds).
    pub lease_step: Duration,
    /// What breaks the promise of one leader at a time, a sentence each.
    pub broken_by: &'static [&'static str],
}

impl Promises {
    /// A store of this name that promises the least.
    pub const fn of(store: &'static str) -> Self {
        Self {
            store,
            life: LifeKind::Observe,
            clock_trust: ClockTrust::Vouched,
            takeover: Takeover::Safe,
            over_is_proof: false,
            push: Push::None,
            // Enough to keep a store busy that is far away, few enough for a store nearby to answer within the
            // shortest time-out.
            reads: BatchLimits { seats: 1, calls: 512 },
            writes: BatchLimits { seats: 1, calls: 512 },
            shared_heartbeat: false,
            durability: "as the server is configured",
            min_lease: Duration::from_millis(15),
            lease_step: Duration::from_nanos(1),
            broken_by: &[],
        }
    }
}

/// How a store tells that a holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeKind {
    /// Only by versions that no longer change.
    Observe,
    /// By its own clock.
    Clock,
    /// By sessions that it ends itself.
    Session,
    /// By locks that the operating system frees when a process is gone, and its own clock.
    Lock,
}

impl fmt::Display for LifeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "observed",
            Self::Clock => "clock",
            Self::Session => "session",
            Self::Lock => "lock",
        })
    }
}
