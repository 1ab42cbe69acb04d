//! Candidates in separate processes, which are killed, paused or stopped in turn.

use std::time::Duration;

use tenure_memcached::MemcachedStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Memcached;

#[test]
fn another_process_takes_over_and_terms_never_overlap() {
    let server = Memcached::start();
    fleet::churn(&server.url(), 6);
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_millis(900), |url| MemcachedStore::from_url(url).unwrap());
}
