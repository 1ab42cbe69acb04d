//! Candidates that share one overlap detector.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

use std::time::Duration;

use tenure_consul::ConsulStore;
use tenure_core::Builder;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, leading, told, until, within};

/// Short, but long enough for a busy machine. Consul ends a session after up to twice as long.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// The key of the one seat of a test.
pub(crate) const SEAT: &str = "tenure/seats/jobs/seat";

/// Starts a candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, detector: &OverlapDetector) -> TestCandidate {
    stand_with(url, id, detector, |election| election)
}

pub(crate) fn stand_with(
    url: &str,
    id: &str,
    detector: &OverlapDetector,
    configure: impl FnOnce(Builder) -> Builder,
) -> TestCandidate {
    TestCandidate::stand(ConsulStore::from_url(url).unwrap(), id, detector, |election| configure(election.lease(LEASE)))
}
