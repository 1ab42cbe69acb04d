//! The cost of elections, by the server's own statistics.

mod support;

use std::time::Duration;

use support::{stand, until, within};
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::Memcached;

/// The figures of the README are for leases of 15 s and 60 s. Commands follow the lease, so a short lease shows how many
/// there are. It is long enough for a busy machine: a term that is lost costs bids.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_leader_writes_three_times_a_lease_and_a_follower_reads_three_times() {
    let (server, detector, lease) = (Memcached::start(), OverlapDetector::new(), Duration::from_secs(4));
    let mut one = stand(&server.url(), "one", lease, &detector);
    one.leads().await;
    let followers = ["two", "three"].map(|id| stand(&server.url(), id, lease, &detector));
    for follower in &followers {
        within("the follower has read the seat", follower.counter.wait_for(|counts| counts.looks > 0)).await;
    }
    // From one renewal to another, so that only whole intervals count.
    let renewals = one.counter.counts().renewals;
    within("a renewal", one.counter.wait_for(|counts| counts.renewals > renewals)).await;
    let (reads, writes, began) = (server.stat("cmd_get"), server.stat("cmd_set"), std::time::Instant::now());
    let renewals = one.counter.counts().renewals;
    within("nine renewals", one.counter.wait_for(|counts| counts.renewals >= renewals + 9)).await;
    let (reads, writes) = (server.stat("cmd_get") - reads, server.stat("cmd_set") - writes);
    let thirds = began.elapsed().as_secs_f64() / (lease.as_secs_f64() / 3.0);
    println!("in {thirds:.1} thirds of a lease: {writes} writes by the leader, {reads} reads by two followers");
    // One command of each process can be in flight at either end.
    assert!((writes as f64) <= thirds * 1.1 + 2.0, "{writes} writes in {thirds:.1} thirds of a lease");
    assert!((reads as f64) <= thirds * 2.2 + 4.0, "{reads} reads in {thirds:.1} thirds of a lease");
    // The last connection is that of this question. The server may not have noticed yet that the one before it is closed.
    until("three processes have one connection each", || server.stat("curr_connections") == 4).await;
}
