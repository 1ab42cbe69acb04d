//! Five hundred elections in one process.

use tenure_etcd::EtcdStore;
use tenure_testkit::figures::{EtcdTarget, Open, many_elections_child, scale};

const OPEN: Open = |url| Box::new(EtcdStore::from_url(url).expect("a valid URL"));

#[test]
fn five_hundred_elections_share_a_heartbeat_and_move_together() {
    scale::check(&EtcdTarget::start(), OPEN, 500);
}

/// Runs many elections if the test started this process for them.
#[test]
fn many_elections() {
    many_elections_child(OPEN);
}
