//! Candidates in processes of their own, killed, stopped and asked to go, in turns.

mod support;

use std::time::Duration;

use tenure_kubernetes::KubernetesStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Kubernetes;

#[test]
fn whatever_happens_to_the_leader_another_takes_over_and_terms_never_overlap() {
    let server = Kubernetes::shared();
    fleet::churn(&support::url(server.kubeconfig(&server.namespace())), 9);
}

/// A candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_secs(2), |url| KubernetesStore::from_url(url).unwrap());
}
