//! The health of an election, and the health reports of a candidate.

use std::fmt;

use crate::Metadata;

/// The health of an election as one candidate sees it, for the health endpoint of your program.
///
/// [`Election::health`](crate::Election::health) returns it for one election,
/// [`Elections::health`](crate::Elections::health) the worst of all elections.
///
/// ```
/// # use tenure_core::{Elections, Health, memory::MemoryStore};
/// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
/// # election.elected_blocking()?;
/// let status = match election.health() {
///     Health::Unhealthy { .. } => 503,
///     _ => 200,
/// };
/// # assert_eq!(status, 200);
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// This candidate leads, or it sees another candidate that leads.
    Healthy {
        /// Which candidate leads, as one line of text.
        reason: String,
    },
    /// This candidate sees no leader. Normal for a moment after a start and after a leader has ended.
    Degraded {
        /// The state of the seat as this candidate knows it, in one line.
        reason: String,
    },
    /// The store has failed for a third of a lease or denies calls, work has overrun its term, a handler has failed, or
    /// the election has ended in this process.
    Unhealthy {
        /// The problem in one line, with the error of the store or the handler.
        reason: String,
    },
}

impl Health {
    /// Returns whether the election is [`Healthy`](Self::Healthy), and not only degraded.
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy { .. })
    }

    /// Returns a number that is higher for worse health.
    pub(crate) fn severity(&self) -> u8 {
        match self {
            Self::Healthy { .. } => 0,
            Self::Degraded { .. } => 1,
            Self::Unhealthy { .. } => 2,
        }
    }

    /// Adds the name of the election to the reason.
    pub(crate) fn of(mut self, election: &str) -> Self {
        let (Self::Healthy { reason } | Self::Degraded { reason } | Self::Unhealthy { reason }) = &mut self;
        *reason = format!("{election}: {reason}");
        self
    }

    /// Returns the reason, as one line of text without the level.
    pub fn reason(&self) -> &str {
        match self {
            Self::Healthy { reason } | Self::Degraded { reason } | Self::Unhealthy { reason } => reason,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Healthy { .. } => "healthy",
            Self::Degraded { .. } => "degraded",
            Self::Unhealthy { .. } => "unhealthy",
        };
        write!(f, "{word}: {}", self.reason())
    }
}

/// The result of a health check: a score from 0 to 1, and metadata that others see in the list of candidates.
///
/// A check can return a score (`0.9`), a `bool` (`true` is 1), a `Result` of either (`Err` is 0, with the error in the
/// metadata), or one of these with [`Metadata`] (`(0.9, [("queue", "17")])`).
///
/// ```
/// # use tenure_core::Report;
/// let report: Report = (0.9, [("queue", "17")]).into();
/// assert_eq!(report.metadata.0["queue"], "17");
/// let failed: Report = Err::<bool, _>("the disk is full").into();
/// assert_eq!(failed.score, 0.0);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The health, from 0 (unhealthy) to 1 (healthy). A score out of this range counts as 0.
    pub score: f64,
    /// Pairs of text that replace the metadata of the last report.
    pub metadata: Metadata,
}

impl From<f64> for Report {
    fn from(score: f64) -> Self {
        Self { score, metadata: Metadata::default() }
    }
}

impl From<bool> for Report {
    fn from(healthy: bool) -> Self {
        Self::from(f64::from(u8::from(healthy)))
    }
}

impl<R: Into<Report>, M: Into<Metadata>> From<(R, M)> for Report {
    fn from((report, metadata): (R, M)) -> Self {
        Self { metadata: metadata.into(), ..report.into() }
    }
}

impl<R: Into<Report>, E: fmt::Display> From<Result<R, E>> for Report {
    fn from(outcome: Result<R, E>) -> Self {
        match outcome {
            Ok(report) => report.into(),
            Err(error) => Self { score: 0.0, metadata: [("error", error.to_string())].into() },
        }
    }
}
