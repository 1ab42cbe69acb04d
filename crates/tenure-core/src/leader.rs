//! The leader of an election, as users see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Candidate, Token};

/// The candidate that leads an election, as last seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The id and the incarnation of the candidate that leads.
    pub candidate: Candidate,
    /// The number of its term, which is its fencing token.
    pub token: Token,
    /// When its term began, by the leader's own wall clock: for people to read, not to compare with other clocks.
    pub since: Option<SystemTime>,
    /// The [`metadata`](crate::Builder::metadata) that the leader was configured with.
    pub metadata: Arc<BTreeMap<String, String>>,
}

impl From<tenure_protocol::Leader> for Leader {
    fn from(seen: tenure_protocol::Leader) -> Self {
        let tenure_protocol::Leader { candidate, token, since_ms, metadata } = seen;
        Self { candidate, token, since: time(since_ms), metadata }
    }
}

/// Converts the milliseconds since 1970 of a record into a time; `None` if the number is out of range.
pub(crate) fn time(ms: Option<u64>) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms?))
}
