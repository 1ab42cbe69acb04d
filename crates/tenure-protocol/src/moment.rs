//! Points in time: on this process's own clock, and on a store's.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the clock of this process.
///
/// It counts nanoseconds from an arbitrary origin, never goes back, and goes on counting while the
/// machine is suspended. It means nothing to any other process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was, or zero if it was not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The last moment up to this one at which the clock had gone so many whole steps: what is due at about
    /// the same time comes to be due at the same.
    pub fn in_step(self, step: Duration) -> Self {
        Self(self.0 - self.0.checked_rem(nanos(step)).unwrap_or(0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0 as f64 / 1e9)
    }
}

/// A point on a store's clock, in nanoseconds from an origin of the store's choosing.
///
/// It may step in either direction; only differences of two readings of the same store mean
/// anything, and the protocol believes those only where its own clock agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTime(i64);

impl StoreTime {
    /// The time `nanos` nanoseconds after the store's origin. What is more than 292 years away counts as that: two
    /// such times are the same, and a lease never passes between them.
    pub const fn from_nanos(nanos: i128) -> Self {
        if nanos > i64::MAX as i128 {
            Self(i64::MAX)
        } else if nanos < i64::MIN as i128 {
            Self(i64::MIN)
        } else {
            Self(nanos as i64)
        }
    }

    /// The time `millis` milliseconds after the store's origin.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the store's origin.
    pub const fn as_nanos(self) -> i128 {
        self.0 as i128
    }

    /// How long before `self` the time `earlier` was, or `None` if it was later.
    pub fn checked_since(self, earlier: Self) -> Option<Duration> {
        let nanos = self.0.checked_sub(earlier.0)?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
