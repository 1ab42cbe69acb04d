//! Candidates in separate processes, which are killed, stopped and asked to leave in turn.

use std::time::Duration;

use tenure_etcd::EtcdStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Etcd;

#[test]
fn another_candidate_takes_over_from_every_lost_leader_and_terms_never_overlap() {
    let etcd = Etcd::start();
    fleet::churn(&etcd.url(), 6);
}

/// Runs as a candidate if the test started this process as one.
#[test]
fn child() {
    fleet::child(Duration::from_secs(2), |url| EtcdStore::from_url(url).unwrap());
}
