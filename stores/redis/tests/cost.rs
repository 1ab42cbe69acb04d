//! The cost of elections, by the server's own statistics.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use support::{stand, within};
use tenure_core::EventKind;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::Redis;

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_one_command_and_between_renewals_the_leader_only_pings() {
    let lease = Duration::from_secs(2);
    let redis = Redis::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&redis.url(), "one", lease, &detector);
    one.leads().await;
    within("the leader renews", one.counter.wait_for(|counts| counts.looks > 0 && counts.renewals > 0)).await;
    let (before, asked_before) = (one.counter.counts(), asked(&redis));
    within("the leader renews several times", one.counter.wait_for(|counts| counts.renewals > before.renewals + 5))
        .await;
    let (after, asked_after) = (one.counter.counts(), asked(&redis));
    assert_eq!(after.reads, before.reads, "a leader that renews read its seat");
    let renewals = after.renewals - before.renewals;
    let announced = after.announcing - before.announcing;
    // One announcement may be in flight at either end.
    assert!(announced <= renewals / 3 + 1, "the process announced itself {announced} times in {renewals} renewals");
    for (command, count) in asked_after {
        let more = count - asked_before.get(&command).copied().unwrap_or(0);
        let most = match command.as_str() {
            "evalsha" => renewals + announced + 1,
            // One between two renewals, after a sixth of a lease of silence.
            "ping" => renewals + 1,
            _ => 0,
        };
        assert!(more <= most, "{more} x {command} for {renewals} renewals");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_reads_once_a_lease_and_is_notified_of_changes() {
    let lease = Duration::from_secs(1);
    let redis = Redis::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&redis.url(), "one", lease, &detector);
    one.leads().await;
    let mut other = stand(&redis.url(), "other", lease, &detector);
    other
        .event("the follower knows the leader", |e| {
            matches!(e, EventKind::LeaderChanged { leader: Some(_), .. }).then_some(())
        })
        .await;
    let (one_counter, other_counter) = (one.counter.clone(), other.counter.clone());
    // Once it is subscribed it reads again, as it may have missed a change.
    within("the follower is subscribed", other.counter.wait_for(|counts| counts.looks > 1)).await;
    let announcing = || one_counter.counts().announcing + other_counter.counts().announcing;
    let (announced, reads, scripts) = (announcing(), other.counter.counts().reads, redis.calls("evalsha"));
    let renewals = one.counter.counts().renewals;
    let leases = 5;
    tokio::time::sleep(lease * leases).await;
    let looked = other.counter.counts().reads - reads;
    let renewed = one.counter.counts().renewals - renewals;
    let scripts = redis.calls("evalsha") - scripts;
    let announced = announcing() - announced;
    assert!(announced <= 2 * (u64::from(leases) + 1), "two processes announced themselves {announced} times");
    assert!(looked <= u64::from(leases) + 1, "{looked} reads in {leases} leases");
    assert!(scripts <= renewed + looked + announced + 2, "{scripts} scripts for {renewed} renewals and {looked} reads");

    // Nevertheless it is notified of a hand-over at once.
    one.election.stop();
    let began = std::time::Instant::now();
    other.leads().await;
    assert!(began.elapsed() < lease, "the follower was not notified");
}

/// Returns how often clients have sent each command. The server also counts commands that scripts call, and the
/// `INFO` of this function; both are left out.
fn asked(redis: &Redis) -> HashMap<String, u64> {
    let stats = redis.ask(&["INFO", "commandstats"]);
    let command = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count = rest.split(',').next()?.parse().ok()?;
        let called = ["time", "hmget", "hset", "hget", "pttl", "pexpire", "info"];
        (!called.contains(&name)).then(|| (name.to_owned(), count))
    };
    stats.text().lines().filter_map(command).collect()
}
