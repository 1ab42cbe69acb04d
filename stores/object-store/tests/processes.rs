//! Candidates in separate processes, which are killed, paused or stopped in turn.

use std::time::Duration;

use tenure_object_store::BucketStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::S3;

#[test]
fn another_process_takes_over_and_terms_never_overlap() {
    let server = S3::start();
    fleet::churn(&server.url(), 3);
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_secs(2), |url| BucketStore::from_url(url).unwrap());
}
