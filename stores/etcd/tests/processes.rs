//! Candidates in processes of their own, killed, stopped and asked to go, in turns.

use std::time::Duration;

use tenure_etcd::EtcdStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Etcd;

#[test]
fn whatever_happens_to_the_leader_another_takes_over_and_terms_never_overlap() {
    let etcd = Etcd::start();
    fleet::churn(&etcd.url(), 6);
}

/// A candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_secs(2), |url| EtcdStore::from_url(url).unwrap());
}
