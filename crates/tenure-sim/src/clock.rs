//! True time, which only the world knows, and the clocks of the nodes and the store.

use std::time::Duration;

use tenure_protocol::Moment;

/// True time, in nanoseconds since the world began.
pub(crate) type Time = u64;

/// Returns a duration in nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

const MILLION: i128 = 1_000_000;

/// A clock with its own origin, which runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalClock {
    origin: u64,
    ppm: i64,
}

impl LocalClock {
    pub(crate) fn new(origin: u64, ppm: i64) -> Self {
        Self { origin, ppm }
    }

    /// Returns what the clock shows at this true time.
    pub(crate) fn read(self, at: Time) -> Moment {
        let passed = i128::from(at) * (MILLION + i128::from(self.ppm)) / MILLION;
        Moment::from_nanos(self.origin + u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Returns the first true time at which the clock shows this moment or a later one.
    pub(crate) fn when(self, moment: Moment) -> Time {
        let passed = i128::from(moment.as_nanos()) - i128::from(self.origin);
        if passed <= 0 {
            return 0;
        }
        let rate = MILLION + i128::from(self.ppm);
        u64::try_from((passed * MILLION + rate - 1) / rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_returns_the_first_time_at_which_the_clock_shows_a_moment() {
        for ppm in [-30_000, -7, 0, 3, 30_000] {
            let clock = LocalClock::new(12_345, ppm);
            for moment in [12_345, 12_346, 20_000, 999_999_937] {
                let at = clock.when(Moment::from_nanos(moment));
                assert!(clock.read(at).as_nanos() >= moment, "{ppm} {moment}");
                assert!(at == 0 || clock.read(at - 1).as_nanos() < moment, "{ppm} {moment}");
            }
        }
    }
}
