//! The durations of an election: scaled from the lease, and checked once.
//!
//! ```text
//!  send of the last renewal                                    hold ends      lease ends
//!  |------ renew_every ------|-- two failed tries, a third --|-- drain --|.. drift ..|
//!  |                          renew  read  ~  renew  read  ~  renew      |           |
//!  0                          5s                        at most 12s  12.7s  14.7s   15s
//! ```

mod error;

use std::time::Duration;

pub use self::error::{DoesNotFit, TimingError};

/// The durations of an election as the user asked for them. `None` is scaled from the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// How long the seat stays taken without a renewal.
    pub lease: Duration,
    /// How long after a renewal the next one is due. Default: lease / 3.
    pub renew_every: Option<Duration>,
    /// The time-out of one call to the store. Default: lease / 15.
    pub call_timeout: Option<Duration>,
    /// The longest pause before a failed call is retried. Default: lease / 15. It is shortened if it does not
    /// fit into the lease.
    pub retry_every: Option<Duration>,
    /// The longest pause of a follower while the store keeps failing. Default: lease / 3.
    pub retry_max: Option<Duration>,
    /// How often a follower reads the seat without being notified. Default: lease / 3, or the lease if the
    /// store detects lost notifications.
    pub poll_every: Option<Duration>,
    /// How long work may take to wrap up before the term ends. Default: lease * 2 / 15.
    pub drain: Option<Duration>,
    /// How long work may take to wrap up when the end is voluntary. Default: `drain`.
    pub stop_grace: Option<Duration>,
    /// How long the store may fail before the candidate stops for good. Default: forever.
    pub give_up_after: Option<Duration>,
    /// How far a clock may run fast or slow, in parts per million. Default: 10,000, which is one percent.
    pub drift_ppm: u32,
}

impl Durations {
    /// The default of [`Durations::drift_ppm`]: one percent.
    pub const DEFAULT_DRIFT_PPM: u32 = 10_000;

    /// Returns durations that are all scaled from this lease.
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

    /// Fills in the defaults, and checks that two failed renewals, their read-backs and a third attempt fit
    /// before the drain. If the retry pause is too long for that, it is shortened: see
    /// [`Timing::shortened_retry`].
    ///
    /// # Errors
    /// If the lease is too short or too long, a duration is zero, `give_up_after` is shorter than the lease, or
    /// the durations do not fit even with the shortest retry pause.
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
            return Err(TimingError::does_not_fit(self.clone(), timing));
        }
        timing.retry_every = timing.retry_every.min(left);
        timing.retry_max = timing.retry_max.max(timing.retry_every);
        Ok(timing)
    }
}

/// The durations of an election, which are known to fit together. [`Durations::check`] creates them.
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
    /// The shortest lease that is accepted. No scheduler keeps processes on time for a shorter one.
    pub const SHORTEST_LEASE: Duration = Duration::from_millis(15);

    /// The longest lease that is accepted, a week. After its machine fails, a seat stays taken for a lease.
    pub const LONGEST_LEASE: Duration = Duration::from_secs(7 * 24 * 3600);

    /// Returns how long the seat stays taken without a renewal.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns how long after a renewal the next one is due.
    pub const fn renew_every(&self) -> Duration {
        self.renew_every
    }

    /// Returns the time-out of one call to the store.
    pub const fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// Returns the longest pause before a failed call is retried.
    pub const fn retry_every(&self) -> Duration {
        self.retry_every
    }

    /// Returns the retry pause that was asked for, if it did not fit into the lease and was shortened.
    pub fn shortened_retry(&self) -> Option<Duration> {
        self.asked_retry.filter(|asked| *asked > self.retry_every)
    }

    /// Returns the longest pause of a follower while the store keeps failing.
    pub const fn retry_max(&self) -> Duration {
        self.retry_max
    }

    /// Returns how often a follower reads the seat without being notified, if the user asked for an interval.
    pub const fn poll_every(&self) -> Option<Duration> {
        self.poll_every
    }

    /// Returns how long the store may fail before the candidate stops for good. `None`: forever.
    pub const fn give_up_after(&self) -> Option<Duration> {
        self.give_up_after
    }

    /// The part of the hold in which renewals are tried: everything before the drain.
    fn room(&self) -> Duration {
        self.hold().saturating_sub(self.drain)
    }

    /// The shortest retry pause. Shorter ones would only add to the load of a store that fails.
    fn shortest_retry(&self) -> Duration {
        self.lease / 150
    }

    /// Returns how long other candidates leave a free seat to its heir, or to a higher priority. It is long
    /// enough for an heir that gets no push, looks every third of a lease, and has a slow clock and a slow
    /// store.
    pub fn head_start(&self) -> Duration {
        self.lease * 2 / 5
    }

    /// Returns how long a candidate must be healthy again before it may stand.
    pub const fn recovery(&self) -> Duration {
        self.lease
    }

    /// Returns how long a candidate must have been healthy, and the store reachable, before the candidate asks
    /// a leader of lower priority to hand over.
    pub fn settled(&self) -> Duration {
        self.lease * 2
    }

    /// Returns how long work may take to wrap up before the term ends.
    pub const fn drain(&self) -> Duration {
        self.drain
    }

    /// Returns how long work may take to wrap up when the end is voluntary.
    pub const fn stop_grace(&self) -> Duration {
        self.stop_grace
    }

    /// Returns how far a clock may run fast or slow, in parts per million.
    pub const fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }

    /// Returns how long after the end of a term its work may still run before that counts as an overrun.
    /// Dropping a future or reaping a process takes a moment.
    pub fn overrun_slack(&self) -> Duration {
        (self.lease / 100).max(Duration::from_millis(50))
    }

    /// Returns how long the leader relies on its lease: `lease * (1 - drift) / (1 + drift)`.
    ///
    /// Even if the leader's clock is as slow and a follower's clock as fast as the drift allows, the hold ends
    /// no later than the follower has counted a whole lease.
    pub fn hold(&self) -> Duration {
        self.hold_of(self.lease)
    }

    /// Returns how long the leader relies on a lease of another length, such as one that a server granted.
    pub fn hold_of(&self, lease: Duration) -> Duration {
        let drift = u128::from(self.drift_ppm).min(MILLION);
        scale(lease, MILLION - drift, MILLION + drift)
    }

    /// Returns the longest time that `span`, measured on one clock, can take on another: `span * (1 + drift) /
    /// (1 - drift)`.
    pub fn stretched(&self, span: Duration) -> Duration {
        let drift = u128::from(self.drift_ppm).min(MILLION - 1);
        // Rounded up, because the division rounds down.
        scale(span, MILLION + drift, MILLION - drift) + Duration::from_nanos(1)
    }
}

const MILLION: u128 = 1_000_000;

fn scale(span: Duration, up: u128, down: u128) -> Duration {
    let nanos = span.as_nanos() * up / down;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

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

    /// Lease, renewal and retry intervals that other systems have by default.
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
    fn invalid_durations_are_refused() {
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
