//! How long everything takes: scaled from the lease, and checked once.
//!
//! ```text
//!  send of the last renewal                                    hold ends      lease ends
//!  |------ renew_every ------|-- two failed tries, a third --|-- drain --|.. drift ..|
//!  |                          renew  read  ~  renew  read  ~  renew      |           |
//!  0                          5s                        at most 12s  12.7s  14.7s   15s
//! ```

use std::fmt;
use std::time::Duration;

/// The durations of an election as asked for. What is `None` is scaled from the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// How long the seat stays taken without a renewal.
    pub lease: Duration,
    /// How long after a renewal the next one is due (lease / 3).
    pub renew_every: Option<Duration>,
    /// How long one call to the store may take (lease / 15).
    pub attempt: Option<Duration>,
    /// The pause after a failed call, at most (lease / 15).
    pub retry_every: Option<Duration>,
    /// What a follower's pauses may grow to while the store keeps failing (lease / 3).
    pub retry_max: Option<Duration>,
    /// How long work is given to wrap up before the term ends (lease * 2 / 15).
    pub drain: Option<Duration>,
    /// How long work may take to wrap up when the end is voluntary (`drain`).
    pub stop_grace: Option<Duration>,
    /// How far a clock may run fast or slow, in parts per million (10,000: one percent).
    pub drift_ppm: u32,
}

impl Durations {
    /// One percent.
    pub const DEFAULT_DRIFT_PPM: u32 = 10_000;

    /// Everything scaled from this lease.
    pub const fn of(lease: Duration) -> Self {
        Self {
            lease,
            renew_every: None,
            attempt: None,
            retry_every: None,
            retry_max: None,
            drain: None,
            stop_grace: None,
            drift_ppm: Self::DEFAULT_DRIFT_PPM,
        }
    }

    /// Fills in what was left open, and checks that it all fits.
    pub fn check(&self) -> Result<Timing, TimingError> {
        let lease = self.lease;
        if lease < Timing::SHORTEST_LEASE {
            return Err(TimingError::LeaseTooShort { lease });
        }
        if lease > Timing::LONGEST_LEASE {
            return Err(TimingError::LeaseTooLong { lease });
        }
        let retry_every = self.retry_every.unwrap_or(lease / 15);
        let drain = self.drain.unwrap_or(lease * 2 / 15);
        let timing = Timing {
            lease,
            renew_every: self.renew_every.unwrap_or(lease / 3),
            attempt: self.attempt.unwrap_or(lease / 15),
            retry_every,
            retry_max: self.retry_max.unwrap_or((lease / 3).max(retry_every)),
            drain,
            stop_grace: self.stop_grace.unwrap_or(drain),
            drift_ppm: self.drift_ppm,
        };
        for (name, span) in
            [("renew_every", timing.renew_every), ("attempt", timing.attempt), ("retry_every", timing.retry_every)]
        {
            if span.is_zero() {
                return Err(TimingError::Zero { name });
            }
        }
        if timing.retry_max < timing.retry_every {
            return Err(TimingError::RetriesContradict {
                retry_every: timing.retry_every,
                retry_max: timing.retry_max,
            });
        }
        let hold = timing.hold();
        let room = hold.saturating_sub(timing.drain);
        let needed = timing
            .renew_every
            .saturating_add(timing.retry_every.saturating_mul(2))
            .saturating_add(timing.attempt.saturating_mul(5));
        if needed > room {
            return Err(TimingError::DoesNotFit(Box::new(DoesNotFit { timing, needed, room })));
        }
        Ok(timing)
    }
}

/// The durations of an election, known to fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
    renew_every: Duration,
    attempt: Duration,
    retry_every: Duration,
    retry_max: Duration,
    drain: Duration,
    stop_grace: Duration,
    drift_ppm: u32,
}

impl Timing {
    /// Shorter leases are refused: no scheduler keeps such a promise.
    pub const SHORTEST_LEASE: Duration = Duration::from_millis(15);

    /// Longer leases are refused: surely a mistake, and a crash would cost a week.
    pub const LONGEST_LEASE: Duration = Duration::from_secs(7 * 24 * 3600);

    /// How long the seat stays taken without a renewal.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long after a renewal the next one is due.
    pub const fn renew_every(&self) -> Duration {
        self.renew_every
    }

    /// How long one call to the store may take.
    pub const fn attempt(&self) -> Duration {
        self.attempt
    }

    /// The pause after a failed call, at most.
    pub const fn retry_every(&self) -> Duration {
        self.retry_every
    }

    /// What a follower's pauses may grow to while the store keeps failing.
    pub const fn retry_max(&self) -> Duration {
        self.retry_max
    }

    /// How long others leave a free seat to whoever was named or goes first: long enough for one that no
    /// push tells of it, looks every third of a lease, and has a slow clock and a slow store.
    pub fn head_start(&self) -> Duration {
        self.lease * 2 / 5
    }

    /// How long a candidate must be well again before it counts as such.
    pub const fn recovery(&self) -> Duration {
        self.lease
    }

    /// How long a candidate must have been well, and the store reachable, before it asks a leader of
    /// lower priority to hand over.
    pub fn settled(&self) -> Duration {
        self.lease * 2
    }

    /// How long work is given to wrap up before the term ends.
    pub const fn drain(&self) -> Duration {
        self.drain
    }

    /// How long work may take to wrap up when the end is voluntary.
    pub const fn stop_grace(&self) -> Duration {
        self.stop_grace
    }

    /// How far a clock may run fast or slow, in parts per million.
    pub const fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }

    /// How long after the end of a term its work may still be seen running before that is called
    /// an overrun: what it takes to drop a future or reap a process.
    pub fn overrun_slack(&self) -> Duration {
        (self.lease / 100).max(Duration::from_millis(50))
    }

    /// How long the leader counts on its lease: `lease * (1 - drift) / (1 + drift)`.
    ///
    /// If its clock is as slow and a follower's as fast as the drift allows, the leader's hold
    /// still ends no later than the follower has counted out the lease.
    pub fn hold(&self) -> Duration {
        self.hold_of(self.lease)
    }

    /// How long the leader counts on a lease of another length (what a server granted).
    pub fn hold_of(&self, lease: Duration) -> Duration {
        let drift = u128::from(self.drift_ppm).min(MILLION);
        scale(lease, MILLION - drift, MILLION + drift)
    }

    /// The longest that `span`, measured on one clock, can seem on another: `span * (1 + drift) /
    /// (1 - drift)`.
    pub fn stretched(&self, span: Duration) -> Duration {
        let drift = u128::from(self.drift_ppm).min(MILLION - 1);
        // One nanosecond more, as the division rounds down.
        scale(span, MILLION + drift, MILLION - drift) + Duration::from_nanos(1)
    }
}

const MILLION: u128 = 1_000_000;

fn scale(span: Duration, up: u128, down: u128) -> Duration {
    let nanos = span.as_nanos() * up / down;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Why durations were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimingError {
    /// The lease is below [`Timing::SHORTEST_LEASE`].
    LeaseTooShort {
        /// The lease asked for.
        lease: Duration,
    },
    /// The lease is above [`Timing::LONGEST_LEASE`].
    LeaseTooLong {
        /// The lease asked for.
        lease: Duration,
    },
    /// A duration is zero that must not be.
    Zero {
        /// The option's name.
        name: &'static str,
    },
    /// `retry_max` is below `retry_every`.
    RetriesContradict {
        /// The first pause.
        retry_every: Duration,
        /// What pauses grow to.
        retry_max: Duration,
    },
    /// Two failed renewals, their read-backs and a third attempt do not fit before the drain.
    DoesNotFit(Box<DoesNotFit>),
}

/// The sum that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoesNotFit {
    timing: Timing,
    needed: Duration,
    room: Duration,
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseTooShort { lease } => write!(
                f,
                "a lease of {lease:?} is too short: ask for {:?} or more (15s is a good start)",
                Timing::SHORTEST_LEASE
            ),
            Self::LeaseTooLong { lease } => write!(
                f,
                "a lease of {lease:?} is too long: after a crash nobody would lead for that time; \
                 ask for a week or less (15s is a good start)"
            ),
            Self::Zero { name } => {
                write!(f, "{name} is zero: give it a duration, or leave it out to scale it from the lease")
            }
            Self::RetriesContradict { retry_every, retry_max } => write!(
                f,
                "retry_max ({retry_max:?}) is shorter than retry_every ({retry_every:?}): raise the one or lower the other"
            ),
            Self::DoesNotFit(sum) => sum.fmt(f),
        }
    }
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.timing;
        write!(
            f,
            "two failed renewals and a third attempt do not fit in the lease: \
             renew_every {:?} + 2 x retry_every {:?} + 5 x attempt {:?} = {:?}, \
             but a lease of {:?} leaves {:?} (hold {:?} at {} % drift, less drain {:?}): \
             renew sooner, lengthen the lease, or leave the others out to scale them from it",
            t.renew_every,
            t.retry_every,
            t.attempt,
            self.needed,
            t.lease,
            self.room,
            t.hold(),
            f64::from(t.drift_ppm) / 10_000.0,
            t.drain,
        )?;
        if t.drift_ppm > 30_000 {
            write!(f, "; a drift above 3 % needs a shorter renew_every, attempt or drain than the usual")?;
        }
        Ok(())
    }
}

impl std::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_lease_of_fifteen_seconds_gives_the_documented_numbers() {
        let t = Durations::of(S(15)).check().unwrap();
        assert_eq!((t.renew_every(), t.attempt(), t.retry_every(), t.drain()), (S(5), S(1), S(1), S(2)));
        assert_eq!(t.hold().as_millis(), 14_702);
    }

    #[test]
    fn every_lease_fits_by_default() {
        for millis in [15, 16, 17, 99, 100, 1000, 2999, 3000, 15_000, 60_000, 7 * 24 * 3600 * 1000] {
            Durations::of(Duration::from_millis(millis)).check().unwrap();
        }
    }

    #[test]
    fn fifteen_seconds_renewed_every_ten_is_refused_with_the_sum() {
        let asked = Durations { renew_every: Some(S(10)), ..Durations::of(S(15)) };
        let text = asked.check().unwrap_err().to_string();
        assert!(text.contains("renew_every 10s + 2 x retry_every 1s + 5 x attempt 1s = 17s"), "{text}");
        assert!(text.contains("a lease of 15s leaves 12.70"), "{text}");
    }

    #[test]
    fn more_than_three_percent_of_drift_needs_other_numbers_and_is_told_so() {
        Durations { drift_ppm: 30_000, ..Durations::of(S(15)) }.check().unwrap();
        let text = Durations { drift_ppm: 40_000, ..Durations::of(S(15)) }.check().unwrap_err().to_string();
        assert!(text.contains("above 3 %"), "{text}");
        let whole = Durations { drift_ppm: 2_000_000, ..Durations::of(S(15)) };
        assert!(matches!(whole.check(), Err(TimingError::DoesNotFit(_))));
    }

    #[test]
    fn nonsense_is_refused() {
        let base = Durations::of(S(15));
        assert!(matches!(Durations::of(Duration::ZERO).check(), Err(TimingError::LeaseTooShort { .. })));
        assert!(matches!(Durations::of(Duration::MAX).check(), Err(TimingError::LeaseTooLong { .. })));
        let zero = Durations { attempt: Some(Duration::ZERO), ..base.clone() };
        assert!(matches!(zero.check(), Err(TimingError::Zero { name: "attempt" })));
        let drain = Durations { drain: Some(Duration::MAX), ..base.clone() };
        assert!(matches!(drain.check(), Err(TimingError::DoesNotFit(_))));
        let retries = Durations { retry_max: Some(Duration::from_millis(1)), ..base };
        assert!(matches!(retries.check(), Err(TimingError::RetriesContradict { .. })));
    }

    #[test]
    fn the_slowest_leader_stops_before_the_fastest_follower_has_counted_the_lease() {
        for ppm in [0, 1, 10_000, 30_000] {
            let t = Durations { drift_ppm: ppm, ..Durations::of(S(15)) }.check().unwrap();
            let slow = t.hold().as_secs_f64() / (1.0 - f64::from(ppm) / 1e6);
            let fast = t.lease().as_secs_f64() / (1.0 + f64::from(ppm) / 1e6);
            assert!(slow <= fast + 1e-9, "{ppm}: {slow} > {fast}");
        }
    }
}
