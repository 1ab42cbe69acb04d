//! Candidates that share one overlap detector.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

pub(crate) mod gate;

use std::path::Path;
use std::time::Duration;

use tenure_core::SingleSeat;
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, told, until, within};

/// Returns the URL of a store that uses this kubeconfig file.
pub(crate) fn url(kubeconfig: impl AsRef<Path>) -> String {
    format!("kubernetes:?kubeconfig={}", kubeconfig.as_ref().display())
}

/// Opens a store at this URL that takes one seat at a time.
pub(crate) fn seats(url: &str) -> SingleSeat {
    SingleSeat::new(KubernetesStore::from_url(url).unwrap())
}

/// Starts a candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, detector: &OverlapDetector) -> TestCandidate {
    TestCandidate::stand(KubernetesStore::from_url(url).unwrap(), id, detector, |election| election.lease(lease))
}
