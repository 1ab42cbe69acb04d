//! Candidates in separate processes, which are killed, stopped and asked to leave in turn.

mod support;

use std::time::Duration;

use tenure_kubernetes::KubernetesStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Kubernetes;

#[test]
fn another_candidate_takes_over_from_every_lost_leader_and_terms_never_overlap() {
    let server = Kubernetes::shared();
    fleet::churn(&support::url(server.kubeconfig(&server.namespace())), 9);
}

/// Runs as a candidate if the test started this process as one.
#[test]
fn child() {
    fleet::child(Duration::from_secs(2), |url| KubernetesStore::from_url(url).unwrap());
}
