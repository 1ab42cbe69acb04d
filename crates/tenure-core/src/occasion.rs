//! Occasions: the times at which a recurring job is due.

use std::time::{Duration, SystemTime};

/// One of the times at which a recurring job is due, which one of all candidates claims:
/// [`Builder::occasion`](crate::Builder::occasion).
///
/// The seat keeps the time of the last claim. Candidates compare it with the times of their own occasions, which are
/// wall-clock times. So clocks that differ too much can run a job twice or skip it. They never run it in two places at
/// the same time: that rests on the term alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion(tenure_protocol::Occasion);

impl Occasion {
    /// Returns the occasion that all candidates name by the same time, such as the scheduled time of a job. A claim of
    /// this time or of a later one claims it, so a candidate that is late for an occasion leaves it alone.
    pub fn at(time: SystemTime) -> Self {
        Self(tenure_protocol::Occasion::new(millis(time), Duration::ZERO))
    }

    /// Returns the occasion of a candidate that starts at `time`, for jobs without a schedule. A claim with a time less
    /// than `span` before `time`, or with a later time, claims it. `span` must be longer than the differences between
    /// the starts and the clocks of all candidates, and shorter than the time between two occasions.
    pub fn within(time: SystemTime, span: Duration) -> Self {
        Self(tenure_protocol::Occasion::new(millis(time), span))
    }

    /// Returns the same occasion, to be claimed again if the term that claimed it ended before its work was reported as
    /// done. The work must tolerate that it runs twice, one run after the other.
    pub fn resumable(self) -> Self {
        Self(self.0.resumable())
    }

    pub(crate) fn rule(self) -> tenure_protocol::Occasion {
        self.0
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
