//! Faults of the network and the server: the laws about faults, and faults that only Redis has. By the timestamps
//! of the work, no two leaders overlap.

mod support;

use std::time::Duration;

use support::{TestCandidate, acted_above, one_connection_each, open, record, seat, stand, until, within};
use tenure_core::{
    Candidate, Clock, DynStore, EndReason, EventKind, Fault, Incarnation, Record, SeatName, SeatStore, Swap, Token,
};
use tenure_redis::RedisStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::servers::{Redis, RedisCluster, RedisSentinel, RedisSetup, Reply};

const LEASE: Duration = Duration::from_millis(1500);

/// A server that has every write on disk before it answers.
struct Server(Redis);

impl faults::Server for Server {
    fn start(_: Wish) -> Self {
        Self(RedisSetup::redis().durable().start())
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        Box::new(RedisStore::from_url(&format!("redis://{address}")).unwrap())
    }

    /// One connection for each process, for calls and notifications.
    fn connections(&self, processes: usize) -> usize {
        processes
    }

    fn pause(&mut self) {
        self.0.pause();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn restart(&mut self) {
        self.0.kill();
        self.0.restart();
    }

    /// The floor of an empty server is its time, which is above all tokens that it ever issued.
    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::AllTokensRise)
    }

    fn restart_empty(&mut self) {
        self.0.restart_empty();
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn waits_for_slow_answers(&self) -> bool {
        false
    }

    fn many_candidates(&self) -> usize {
        200
    }
}

mod laws {
    tenure_testkit::faults!(super::Server);
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_wait_a_lease_after_a_flush_and_tokens_rise() {
    let redis = Redis::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&redis.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    let other = stand(&redis.url(), "other", LEASE, &detector);
    within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
    redis.ask(&["FLUSHALL"]);
    assert_eq!(one.loses().await, (first, EndReason::SeatVanished));
    assert!(acted_above(&detector, first).await > first);
    one_connection_each(&redis, 2).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_seat_is_reported_as_vanished() {
    let redis = Redis::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&redis.url(), "one", Duration::from_secs(6), &detector);
    let first = one.leads().await;
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the seat is evicted", || redis.ask(&["DBSIZE"]) == Reply::Number(0)).await;
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(one.loses().await, (first, EndReason::SeatVanished));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_of_a_deleted_seat_is_lost_and_not_an_error() {
    let redis = Redis::start();
    let store = open(&redis.url());
    let Swap::Done { version, .. } = store.swap(&seat(), None, &record(7)).await.unwrap() else { panic!() };
    redis.ask(&["DEL", "tenure:{jobs}:seat"]);
    assert_eq!(store.renew(&seat(), &version, &record(7)).await.unwrap(), Swap::Lost);
    assert_eq!(redis.ask(&["EXISTS", "tenure:{jobs}:seat"]), Reply::Number(0), "the renewal created the seat again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_a_notification_is_found_by_polling() {
    let redis = Redis::start();
    let (seat, detector) = (SeatName::new("jobs").unwrap(), OverlapDetector::new());
    let holder = Some(Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) });
    let held = Record { nonce: 1, ..Record::new(holder, Token::new(7), LEASE * 2) };
    let swap = open(&redis.url()).swap(&seat, None, &held).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
    let mut other = stand(&redis.url(), "other", LEASE, &detector);
    within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
    // By then the follower has subscribed and received all messages.
    tokio::time::sleep(LEASE / 3).await;
    // The same write as a release, but without a message.
    let vacant = tenure_core::record::to_json(&Record { holder: None, nonce: 2, ..held.clone() });
    redis.ask(&["HSET", "tenure:{jobs}:seat", "nonce", &format!("{:016x}", 2), "record", &vacant, "holder", "- 7"]);
    assert!(other.leads().await > held.token);
}

/// For a while the server has too few replicas and refuses all writes. If a follower took the seat for released meanwhile, it
/// would take the seat that is still held for one that went backwards, and leave it alone for a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_was_refused_at_first_is_taken_up_at_once_in_the_end() {
    let redis = Redis::start();
    let (lease, detector) = (Duration::from_secs(15), OverlapDetector::new());
    let mut one = stand(&redis.url(), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&redis.url(), "other", lease, &detector);
    other.knows(first).await;
    // It has subscribed, and has read the seat again since.
    settled_reads(&other).await;
    redis.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    one.election.step_down();
    one.fails().await;
    // A follower that was notified of a release would act on it by then.
    tokio::time::sleep(Duration::from_millis(500)).await;
    redis.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let writable = Clock::system().now();
    other.leads().await;
    let waited = Clock::system().now().since(writable);
    assert!(waited < lease / 3, "nobody led for {waited:?}");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_follow_a_failover_by_sentinels() {
    let mut trio = RedisSentinel::start();
    let detector = OverlapDetector::new();
    let one = stand(&trio.url(), "one", LEASE, &detector);
    let other = stand(&trio.url(), "other", LEASE, &detector);
    let first = acted_above(&detector, Token::ZERO).await;
    trio.servers[0].kill();
    // The failover takes longer than a lease: the term ends, and the next one begins on the replica.
    let second = acted_above(&detector, first).await;
    assert_eq!(trio.master(), Some(1));
    assert!(second > first);
    assert!(one.election.is_leader() || other.election.is_leader());
    one_connection_each(&trio.servers[1], 2).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_candidate_leads_by_a_write_that_too_few_replicas_have() {
    let redis = Redis::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&format!("{}?min_replicas=1", redis.url()), "one", Duration::from_secs(6), &detector);
    let (fault, error) = one.fails().await;
    assert_eq!(fault, Fault::Unknown);
    assert!(error.contains("fewer than min_replicas=1 replicas confirmed it in time"), "{error}");
    let swaps = one.counter.counts();
    within(
        "the candidate tries again",
        one.counter.wait_for(|c| c.swaps + c.renewals > swaps.swaps + swaps.renewals + 2),
    )
    .await;
    assert_eq!(detector.work_spans(), 0, "the candidate leads by a write that may be lost");
    let port = redis.port().to_string();
    let _replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
    acted_above(&detector, Token::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_has_lost_its_replicas_stops() {
    let redis = Redis::start();
    let port = redis.port().to_string();
    let mut replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
    let detector = OverlapDetector::new();
    let url = format!("{}?min_replicas=1", redis.url());
    let mut one = stand(&url, "one", LEASE * 2, &detector);
    let first = one.leads().await;
    let _other = stand(&url, "other", LEASE * 2, &detector);
    replica.kill();
    assert_eq!(one.loses().await.0, first);
    replica.restart();
    acted_above(&detector, first).await;
    one_connection_each(&redis, 2).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_moves_within_a_cluster_costs_no_term() {
    let lease = Duration::from_secs(4);
    let cluster = RedisCluster::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&cluster.url(), "one", lease, &detector);
    one.leads().await;
    let other = stand(&cluster.url(), "other", lease, &detector);
    within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
    cluster.move_key("tenure:{jobs}:seat");
    let renewals = one.counter.counts().renewals;
    within("the leader renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert!(one.election.is_leader());
    assert_eq!(detector.work_spans(), 1, "the term was lost");
    one.election.stop();
    let mut other = other;
    other.leads().await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_read_a_seat_again_that_has_moved_within_a_cluster() {
    // So long that no follower reads the seat only because time has passed.
    let lease = Duration::from_secs(300);
    let cluster = RedisCluster::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&cluster.url(), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&cluster.url(), "other", lease, &detector);
    other.knows(first).await;
    let reads = settled_reads(&other).await;
    cluster.move_key("tenure:{jobs}:seat");
    // This is the first call of the process that learns of the move.
    other.elections.look("jobs").await.unwrap();
    // Changes during the move can have been missed.
    within("the follower reads the seat again", other.counter.wait_for(|counts| counts.reads >= reads + 2)).await;
    detector.acts_do_not_overlap().unwrap();
}

/// Waits until a candidate has read the seat as often as it wants to, and returns how often that was.
async fn settled_reads(candidate: &TestCandidate) -> u64 {
    loop {
        let reads = candidate.counter.counts().reads;
        let more = candidate.counter.wait_for(|counts| counts.reads > reads);
        if tokio::time::timeout(Duration::from_secs(1), more).await.is_err() {
            return reads;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_rights_are_reported_and_another_candidate_takes_over() {
    let redis = Redis::start();
    redis.ask(&["ACL", "SETUSER", "jobs", "on", ">secret", "~tenure:*", "&tenure:*", "+@all"]);
    let detector = OverlapDetector::new();
    let mut one = stand(&format!("redis://jobs:secret@{}", redis.address()), "one", LEASE, &detector);
    let first = one.leads().await;
    let _other = stand(&redis.url(), "other", LEASE, &detector);
    redis.ask(&["ACL", "SETUSER", "jobs", "-evalsha", "-eval"]);
    let (error, lost) = one.is_denied_and_loses().await;
    assert!(error.contains("does not permit a command") && !error.contains("secret"), "{error}");
    assert_eq!(lost, first);
    acted_above(&detector, first).await;
    redis.ask(&["ACL", "SETUSER", "jobs", "+evalsha", "+eval"]);
    one.event("the recovery is reported", |event| matches!(event, EventKind::Recovered).then_some(())).await;
    one_connection_each(&redis, 2).await;
    detector.acts_do_not_overlap().unwrap();
}
