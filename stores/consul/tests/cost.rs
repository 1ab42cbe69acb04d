//! The cost of elections, by the server's own metrics.

mod support;

use std::time::Duration;

use support::{LEASE, stand, within};
use tenure_consul::ConsulStore;
use tenure_core::{Elections, Token};
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::Consul;
use tenure_testkit::wrap::Counting;

#[tokio::test(flavor = "multi_thread")]
async fn one_session_serves_one_election_or_a_thousand_at_the_same_cost() {
    tokio::join!(measure(1), measure(1000));
}

async fn measure(elections: u64) {
    let consul = Consul::start();
    let (store, counter) = Counting::new(ConsulStore::from_url(&consul.url()).unwrap());
    let process = Elections::new(store);
    let lease = Duration::from_secs(15);
    let seats: Vec<_> =
        (0..elections).map(|number| process.election(format!("seat-{number}")).lease(lease).start().unwrap()).collect();
    for seat in &seats {
        within("the candidate leads", seat.elected()).await.unwrap();
    }
    // By then all elections share one heartbeat.
    tokio::time::sleep(lease / 2).await;
    let asked = || {
        let paths = [("PUT", "/v1/session/renew/_"), ("GET", "/v1/kv/_"), ("PUT", "/v1/txn")];
        paths.map(|(method, path)| consul.count(method, path))
    };
    let (before, renewed) = (asked(), counter.counts().renewals);
    tokio::time::sleep(lease).await;
    let (after, renewals) = (asked(), counter.counts().renewals - renewed);
    let [beats, reads, asks] = [0, 1, 2].map(|which| after[which] - before[which]);
    println!(
        "{renewals} renewals of {elections} seats in a lease: {beats} of the session, {reads} reads, {asks} transactions"
    );
    // One for the seats, one for notes that last as long as the process, and one for notes that last ten minutes.
    assert_eq!(consul.sessions(), 3, "sessions for {elections} elections");
    assert!(renewals >= 2 * elections, "{renewals}");
    assert!((2..=7).contains(&beats), "{renewals} renewals were {beats} of the session");
    // One check of the seats for each heartbeat, and the blocking query.
    assert!(reads <= beats + 6, "{reads} reads for {beats} heartbeats");
    // Nothing is written. Once a lease, one transaction checks that the process is still listed, for all its
    // elections.
    assert!(asks <= 2, "{asks} transactions");
    assert!(seats.iter().all(|seat| seat.is_leader()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_reads_once_a_lease_and_keeps_one_session_ready() {
    let consul = Consul::start();
    let detector = OverlapDetector::new();
    let leader = stand(&consul.url(), "leader", &detector);
    support::acted_above(&detector, Token::ZERO).await;
    let follower = stand(&consul.url(), "follower", &detector);
    tokio::time::sleep(LEASE * 2).await;
    let before = follower.counter.counts();
    let leases = 6;
    tokio::time::sleep(LEASE * leases).await;
    let after = follower.counter.counts();
    let reads = after.regular_reads_since(&before);
    println!("{reads} reads of a follower in {leases} leases");
    assert!(reads <= u64::from(leases) + 3, "a follower has read {reads} times in {leases} leases");
    assert_eq!(after.swaps, before.swaps, "the follower has written");
    assert_eq!(consul.sessions(), 6);
    assert!(leader.election.is_leader());
}
