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
    pub call_timeout: Option<Duration>,
    /// The longest pause before a failed call is retried (lease / 15). Shortened if it does not fit into the lease.
    pub retry_every: Option<Duration>,
    /// The longest that a follower's pauses grow to while the store keeps failing (lease / 3).
    pub retry_max: Option<Duration>,
    /// How often a follower reads the seat although it was notified of nothing (lease / 3, or the lease where lost
    /// notifications are detected).
    pub poll_every: Option<Duration>,
    /// How long work is given to wrap up before the term ends (lease * 2 / 15).
    pub drain: Option<Duration>,
    /// How long work may take to wrap up when the end is voluntary (`drain`).
    pub stop_grace: Option<Duration>,
    /// Stop for good after the store has failed for this long (never).
    pub give_up_after: Option<Duration>,
    /// How far a clock may run fast or slow, in parts per million (10,000: one percent).
    pub drift_ppm: u32,
}

impl Durations {
    /// One percent.
    pub const DEFAULT_DRIFT_PPM: u32 = 10_000;

    /// Scales everything from this lease.
    pub const fn of(lease: Duration) -> Self {
        Self {
            lease,
            renew_every: None,
            call_timeout: None,
            retry_every: None,
            retry_max: None,
            poll_every: None,
            drain: None,
            stop_grace: None,
            give_up_after: None,
            drift_ppm: Self::DEFAULT_DRIFT_PPM,
        }
    }

    /// Fills in what was left open, and checks that two failed renewals, their read-backs and a third try fit before
    /// the drain. A retry pause that is too long for that is shortened: see [`Timing::shortened_retry`].
    ///
    /// # Errors
    /// If a duration is zero, or the rest does not fit even with the shortest retry pause.
    pub fn check(&self) -> Result<Timing, TimingError> {
        let lease = self.lease;
        if lease < Timing::SHORTEST_LEASE {
            return Err(TimingError::LeaseTooShort { lease });
        }
        if lease > Timing::LONGEST_LEASE {
            return Err(TimingError::LeaseTooLong { lease });
        }
        let asked = self.retry_every.unwrap_or(lease / 15).min(self.retry_max.unwrap_or(Duration::MAX));
        let drain = self.drain.unwrap_or(lease * 2 / 15);
        let mut timing = Timing {
            lease,
            renew_every: self.renew_every.unwrap_or(lease / 3),
            call_timeout: self.call_timeout.unwrap_or(lease / 15),
            retry_every: asked,
            retry_max: self.retry_max.unwrap_or(lease / 3),
            poll_every: self.poll_every,
            drain,
            stop_grace: self.stop_grace.unwrap_or(drain),
            give_up_after: self.give_up_after,
            drift_ppm: self.drift_ppm,
            asked_retry: self.retry_every,
        };
        let given = [
            ("renew_every", Some(timing.renew_every)),
            ("call_timeout", Some(timing.call_timeout)),
            ("retry_every", Some(timing.retry_every)),
            ("poll_every", timing.poll_every),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, span)| span.is_some_and(|span| span.is_zero())) {
            return Err(TimingError::Zero { name });
        }
        if let Some(give_up_after) = self.give_up_after.filter(|span| *span < lease) {
            return Err(TimingError::GivesUpTooSoon { give_up_after, lease });
        }
        let others = timing.renew_every.saturating_add(timing.call_timeout.saturating_mul(5));
        let left = timing.room().checked_sub(others).unwrap_or_default() / 2;
        if left < timing.shortest_retry() {
            return Err(TimingError::DoesNotFit(Box::new(DoesNotFit { timing })));
        }
        timing.retry_every = timing.retry_every.min(left);
        timing.retry_max = timing.retry_max.max(timing.retry_every);
        Ok(timing)
    }
}

/// The durations of an election, known to fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
    renew_every: Duration,
    call_timeout: Duration,
    retry_every: Duration,
    retry_max: Duration,
    poll_every: Option<Duration>,
    drain: Duration,
    stop_grace: Duration,
    give_up_after: Option<Duration>,
    drift_ppm: u32,
    asked_retry: Option<Duration>,
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
    pub const fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// The longest pause before a failed call is retried.
    pub const fn retry_every(&self) -> Duration {
        self.retry_every
    }

    /// Returns the retry pause that was asked for, if it did not fit into the lease and was shortened.
    pub fn shortened_retry(&self) -> Option<Duration> {
        self.asked_retry.filter(|asked| *asked > self.retry_every)
    }

    /// The longest that a follower's pauses grow to while the store keeps failing.
    pub const fn retry_max(&self) -> Duration {
        self.retry_max
    }

    /// How often a follower reads the seat although it was notified of nothing, if that was asked for.
    pub const fn poll_every(&self) -> Option<Duration> {
        self.poll_every
    }

    /// Stop for good after the store has failed for this long; `None`: never.
    pub const fn give_up_after(&self) -> Option<Duration> {
        self.give_up_after
    }

    /// The time of a lease in which renewals are tried: before the drain.
    fn room(&self) -> Duration {
        self.hold().saturating_sub(self.drain)
    }

    /// Shorter pauses between the calls of a leader whose store fails would only add to the store's load.
    fn shortest_retry(&self) -> Duration {
        self.lease / 150
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
    /// `give_up_after` is shorter than the lease: a candidate would stop for good whenever the store restarts.
    GivesUpTooSoon {
        /// What was asked for.
        give_up_after: Duration,
        /// The lease.
        lease: Duration,
    },
    /// Two failed renewals, their read-backs and a third attempt do not fit before the drain.
    DoesNotFit(Box<DoesNotFit>),
}

/// The sum that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoesNotFit {
    timing: Timing,
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
            Self::GivesUpTooSoon { give_up_after, lease } => write!(
                f,
                "give_up_after must be at least the lease ({lease:?}), got {give_up_after:?}: \
                 a shorter one would end the candidate for good at the next restart of the store"
            ),
            Self::DoesNotFit(sum) => sum.fmt(f),
        }
    }
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.timing;
        write!(f, "a lease of {:?} cannot be renewed safely with these durations: ", t.lease)?;
        let others = t.call_timeout.saturating_mul(5).saturating_add(t.shortest_retry() * 2);
        match t.room().checked_sub(others).filter(|most| !most.is_zero()) {
            Some(most) => write!(f, "use a renew_every of at most {:?}", rounded(most))?,
            None => write!(f, "leave call_timeout, drain and drift out, or give a longer lease")?,
        }
        write!(
            f,
            " (two failed renewals and a third try take renew_every {:?} + 2 x retry_every {:?} + 5 x call_timeout {:?} \
             = {:?}, and the lease leaves {:?}: {:?} less {} % drift and drain {:?})",
            t.renew_every,
            t.shortest_retry(),
            t.call_timeout,
            t.renew_every.saturating_add(others),
            t.room(),
            t.lease,
            f64::from(t.drift_ppm) / 10_000.0,
            t.drain,
        )
    }
}

/// Rounds down to what people write.
fn rounded(span: Duration) -> Duration {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(if millis > 1000 { millis - millis % 100 } else { millis })
}

impl std::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_lease_of_fifteen_seconds_gives_the_documented_numbers() {
        let t = Durations::of(S(15)).check().unwrap();
        assert_eq!((t.renew_every(), t.call_timeout(), t.retry_every(), t.drain()), (S(5), S(1), S(1), S(2)));
        assert_eq!(t.hold().as_millis(), 14_702);
    }

    #[test]
    fn every_lease_fits_by_default() {
        for millis in [15, 16, 17, 99, 100, 1000, 2999, 3000, 15_000, 60_000, 7 * 24 * 3600 * 1000] {
            Durations::of(Duration::from_millis(millis)).check().unwrap();
        }
    }

    #[test]
    fn fifteen_seconds_renewed_every_ten_is_refused_with_what_would_do() {
        let asked = Durations { renew_every: Some(S(10)), ..Durations::of(S(15)) };
        let text = asked.check().unwrap_err().to_string();
        assert!(text.contains("use a renew_every of at most 7.5s"), "{text}");
        assert!(text.contains("renew_every 10s + 2 x retry_every 100ms + 5 x call_timeout 1s = 15.2s"), "{text}");
        let advised = Durations { renew_every: Some(Duration::from_millis(7500)), ..Durations::of(S(15)) };
        advised.check().unwrap();
    }

    /// Lease, renewals and retries as other systems have them by default.
    #[test]
    fn retries_that_do_not_fit_are_shortened() {
        for (lease, renew, retry) in [(30, 10, 5), (15, 5, 2), (15, 3, 3), (15, 2, 2), (15, 5, 10)] {
            let asked =
                Durations { renew_every: Some(S(renew)), retry_every: Some(S(retry)), ..Durations::of(S(lease)) };
            let timing = asked.check().unwrap();
            let needed = timing.renew_every() + timing.retry_every() * 2 + timing.call_timeout() * 5;
            assert!(needed <= timing.hold() - timing.drain(), "{timing:?}");
            let shortened = (timing.retry_every() < S(retry)).then_some(S(retry));
            assert_eq!(timing.shortened_retry(), shortened);
        }
        assert_eq!(Durations::of(S(15)).check().unwrap().shortened_retry(), None);
    }

    #[test]
    fn nobody_gives_up_within_a_lease() {
        let soon = Durations { give_up_after: Some(S(14)), ..Durations::of(S(15)) };
        let text = soon.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "give_up_after must be at least the lease (15s), got 14s: \
             a shorter one would end the candidate for good at the next restart of the store"
        );
        Durations { give_up_after: Some(S(15)), ..Durations::of(S(15)) }.check().unwrap();
    }

    #[test]
    fn more_than_ten_percent_of_drift_need_sooner_renewals_and_the_error_says_so() {
        Durations { drift_ppm: 100_000, ..Durations::of(S(15)) }.check().unwrap();
        let asked = Durations { drift_ppm: 120_000, ..Durations::of(S(15)) };
        let text = asked.check().unwrap_err().to_string();
        assert!(text.contains("use a renew_every of at most 4.5s"), "{text}");
        Durations { renew_every: Some(Duration::from_millis(4500)), ..asked }.check().unwrap();
        let whole = Durations { drift_ppm: 2_000_000, ..Durations::of(S(15)) };
        assert!(matches!(whole.check(), Err(TimingError::DoesNotFit(_))));
    }

    #[test]
    fn nonsense_is_refused() {
        let base = Durations::of(S(15));
        assert!(matches!(Durations::of(Duration::ZERO).check(), Err(TimingError::LeaseTooShort { .. })));
        assert!(matches!(Durations::of(Duration::MAX).check(), Err(TimingError::LeaseTooLong { .. })));
        let zero = Durations { call_timeout: Some(Duration::ZERO), ..base.clone() };
        assert!(matches!(zero.check(), Err(TimingError::Zero { name: "call_timeout" })));
        let drain = Durations { drain: Some(Duration::MAX), ..base.clone() };
        assert!(matches!(drain.check(), Err(TimingError::DoesNotFit(_))));
        let retries = Durations { retry_max: Some(Duration::from_millis(1)), ..base };
        assert_eq!(retries.check().unwrap().retry_every(), Duration::from_millis(1));
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
