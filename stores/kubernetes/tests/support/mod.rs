//! Candidates at one desk, whose work tells whether two ever led at once.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

pub(crate) mod gate;

use std::path::Path;
use std::time::Duration;

use tenure_kubernetes::KubernetesStore;
use tenure_testkit::Desk;
pub(crate) use tenure_testkit::contender::{Contender, acted_above, told, until, within};

/// The URL of a store by way of a kubeconfig file.
pub(crate) fn url(kubeconfig: impl AsRef<Path>) -> String {
    format!("kubernetes:?kubeconfig={}", kubeconfig.as_ref().display())
}

/// A candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, desk: &Desk) -> Contender {
    Contender::stand(KubernetesStore::from_url(url).unwrap(), id, desk, |election| election.lease(lease))
}
