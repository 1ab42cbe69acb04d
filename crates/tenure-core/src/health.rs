//! How an election fares, and how well a candidate is.

use std::fmt;

use crate::Metadata;

/// How an election fares, as seen from one candidate: for health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It leads, or sees a valid leader.
    Healthy {
        /// Which of them.
        reason: String,
    },
    /// No leader is seen.
    Degraded {
        /// What is known of it.
        reason: String,
    },
    /// The store cannot be reached or denies us, work has overrun its term, or the election has ended
    /// here.
    Unhealthy {
        /// Which of them.
        reason: String,
    },
}

impl Health {
    /// Whether it is [`Healthy`](Self::Healthy).
    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Healthy { .. })
    }

    /// Why it is so.
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

/// What a health check says: how well the candidate is, from 0 to 1, and what it tells about itself.
///
/// A check may return a score (`0.9`), a truth (`true`), or either with [`Metadata`]
/// (`(0.9, [("queue", "17")])`). What fails is not well: `Err` counts as 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// How well it is.
    pub score: f64,
    /// What it tells about itself.
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
