//! Candidates in separate processes, which are killed, paused or stopped in turn.

use std::time::Duration;

use tenure_redis::RedisStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Redis;

#[test]
fn another_process_takes_over_and_terms_never_overlap() {
    let redis = Redis::start();
    fleet::churn(&redis.url(), 12);
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_millis(900), |url| RedisStore::from_url(url).unwrap());
}
