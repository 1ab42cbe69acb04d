//! The promises of a store, as data.

use std::fmt;
use std::time::Duration;

use tenure_protocol::{BatchLimits, ClockTrust, Push, Takeover};

/// The promises of a store, as data: how it detects that a leader is gone, its limits, and what breaks the promise of
/// one leader at a time.
///
/// The engine checks it when an election starts, and `tenure stores` prints it. Store authors start from the weakest
/// promises:
///
/// ```
/// # use tenure_core::{Promises, Push};
/// let promises = Promises { push: Push::Hint, ..Promises::of("redis") };
/// # assert_eq!(promises.store, "redis");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The name of the store, as in the schemes of its URLs.
    pub store: &'static str,
    /// How the store detects that the holder of a seat is gone.
    pub life: LifeKind,
    /// When candidates believe the store's clock, unless the option `clock_trust` is set.
    pub clock_trust: ClockTrust,
    /// When candidates take over a seat whose session has ended, unless the option `takeover` is set.
    pub takeover: Takeover,
    /// Whether a session cannot end while its process lives, so that its end proves that the leader is gone.
    pub over_is_proof: bool,
    /// Whether the death of a process frees its seats at once, because the store has a
    /// [lifeline](crate::Store::lifeline). The seats of other stores are freed by a last will, or when their leases
    /// expire.
    pub lifeline: bool,
    /// Whether the store pushes changes, and whether it detects lost notifications.
    pub push: Push,
    /// How many seats a call reads at most, and how many such calls can be in flight at once. Calls with different leases
    /// or urgency are counted apart (renewals and releases, bids, other reads, notes), so that none waits for another.
    pub reads: BatchLimits,
    /// How many seats a call writes at most, and how many such calls can be in flight at once, counted as for `reads`.
    pub writes: BatchLimits,
    /// Whether one heartbeat renews all seats of a process.
    pub shared_heartbeat: bool,
    /// Which failures a confirmed write survives, in words for people.
    pub durability: &'static str,
    /// The shortest lease that the store can keep. Shorter ones are refused at the start.
    pub min_lease: Duration,
    /// The longest lease that the store can keep. Longer ones are refused at the start.
    pub max_lease: Duration,
    /// Leases must be multiples of this (a second, for stores that count in seconds).
    pub lease_step: Duration,
    /// The conditions that break the promise of one leader at a time, one sentence each.
    pub broken_by: &'static [&'static str],
}

impl Promises {
    /// Returns the weakest promises, for a store of this name. Override the fields in which the store promises more.
    pub const fn of(store: &'static str) -> Self {
        Self {
            store,
            life: LifeKind::Observe,
            clock_trust: ClockTrust::Vouched,
            takeover: Takeover::Safe,
            over_is_proof: false,
            lifeline: false,
            push: Push::None,
            // Enough calls to keep a distant store busy, and few enough for a nearby store to answer all of them within
            // the shortest time-out.
            reads: BatchLimits { seats: 1, calls: 512 },
            writes: BatchLimits { seats: 1, calls: 512 },
            shared_heartbeat: false,
            durability: "as the server is configured",
            min_lease: Duration::from_millis(15),
            max_lease: Duration::MAX,
            lease_step: Duration::from_nanos(1),
            broken_by: &[],
        }
    }
}

/// How a store detects that the holder of a seat is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LifeKind {
    /// It does not: followers observe that the version no longer changes (Kubernetes).
    Observe,
    /// By its own clock and the time of the last renewal (Redis, PostgreSQL).
    Clock,
    /// By sessions that the store ends when heartbeats stop (etcd, Consul).
    Session,
    /// By locks that the operating system frees when a process ends, and by its own clock (SQLite).
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
