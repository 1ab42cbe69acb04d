//! Points in time, on this process's own clock and on a store's clock.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time on the clock of this process.
///
/// A moment counts nanoseconds from an arbitrary origin. The clock never goes back, and it keeps counting while
/// the machine is suspended. Moments of two processes are not comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(
    /// One more than the nanoseconds since the origin, so that an `Option<Moment>` takes no more memory than a moment.
    NonZeroU64,
);

impl Moment {
    /// The origin of the clock, which is before every moment that the clock shows.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);

    /// Returns the moment `nanos` nanoseconds after the origin of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Returns the number of nanoseconds since the origin of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    /// Rounds this moment down to a multiple of `step` since the origin of the clock. Deadlines that are close
    /// to each other become equal, so that they share a call.
    pub fn in_step(self, step: Duration) -> Self {
        Self::from_nanos(self.as_nanos() - self.as_nanos().checked_rem(nanos(step)).unwrap_or(0))
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
        Self::from_nanos(self.as_nanos().saturating_sub(nanos(span)))
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::ORIGIN
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moment").field(&self.as_nanos()).finish()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.as_nanos() as f64 / 1e9)
    }
}

/// A point in time on a store's clock, in nanoseconds from an origin that the store chooses.
///
/// A store's clock can step in either direction. Only the difference of two times of the same store means
/// anything, and the protocol relies on such a difference only where its own clock confirms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTime(i64);

impl StoreTime {
    /// Returns the time `nanos` nanoseconds after the store's origin. Times more than 292 years from the origin
    /// are clamped: two clamped times are equal, so a lease never passes between them.
    pub const fn from_nanos(nanos: i128) -> Self {
        if nanos > i64::MAX as i128 {
            Self(i64::MAX)
        } else if nanos < i64::MIN as i128 {
            Self(i64::MIN)
        } else {
            Self(nanos as i64)
        }
    }

    /// Returns the time `millis` milliseconds after the store's origin, clamped like [`StoreTime::from_nanos`].
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the number of nanoseconds since the store's origin, negative before it.
    pub const fn as_nanos(self) -> i128 {
        self.0 as i128
    }

    /// Returns the time from `earlier` to `self`, or `None` if `earlier` is later.
    pub fn checked_since(self, earlier: Self) -> Option<Duration> {
        let nanos = self.0.checked_sub(earlier.0)?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
