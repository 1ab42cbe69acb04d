//! Tokens after the server has lost writes: a candidate that has not seen the lost terms must not get a token
//! that is in use, and a resource that rejects lower tokens must never see one token from two candidates.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{open, seat, stand, within};
use tenure_core::{Candidate, Election, Incarnation, Record, SeatStore, Swap, Token};
use tenure_testkit::OverlapDetector;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Redis, RedisSetup, Reply};

const LEASE: Duration = Duration::from_millis(1500);

/// The number of rounds for each kind of loss. Set `TENURE_TEST_LOSSES=200` for more.
fn rounds() -> usize {
    std::env::var("TENURE_TEST_LOSSES").map_or(5, |rounds| rounds.parse().unwrap())
}

/// A resource that leaders write to. It accepts a write unless it has seen a higher token.
#[derive(Default)]
struct Resource {
    highest: Token,
    /// The candidate that used each token first.
    owners: HashMap<Token, Incarnation>,
}

impl Resource {
    /// Returns whether the resource accepts a write with this token.
    fn write(&mut self, token: Token, by: Incarnation) -> bool {
        let owner = *self.owners.entry(token).or_insert(by);
        assert_eq!(owner, by, "token {token} was issued twice");
        self.highest = self.highest.max(token);
        token == self.highest
    }
}

/// Takes the seat, held or not, as a candidate that has never seen it before.
async fn win(url: &str, by: Incarnation) -> Token {
    let store = open(url);
    let reading = within("the read is answered", store.read(&seat())).await.unwrap();
    let (version, seen) = reading.seat.map_or((None, Token::ZERO), |seat| (Some(seat.version), seat.record.token));
    let token = seen.max(reading.floor).next().unwrap();
    let holder = Candidate { id: "a".into(), incarnation: by };
    let next = Record { nonce: rand::random(), ..Record::new(Some(holder), token, LEASE) };
    let swap = within("the bid is answered", store.swap(&seat(), version.as_ref(), &next)).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
    token
}

/// Lets new candidates win, one after the other, and checks that the resource accepts each of them.
struct Fence {
    resource: Resource,
    candidates: u128,
}

impl Fence {
    fn new() -> Self {
        Self { resource: Resource::default(), candidates: 0 }
    }

    async fn win(&mut self, url: &str) {
        self.candidates += 1;
        let by = Incarnation::from_bits(self.candidates);
        let token = win(url, by).await;
        assert!(self.resource.write(token, by), "{token} is not above {}", self.resource.highest);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_from_an_old_snapshot_issues_no_token_twice() {
    let (mut redis, mut fence) = (Redis::start(), Fence::new());
    fence.win(&redis.url()).await;
    for _ in 0..rounds() {
        redis.ask(&["SAVE"]);
        fence.win(&redis.url()).await;
        fence.win(&redis.url()).await;
        redis.kill();
        redis.restart();
        fence.win(&redis.url()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_promotion_of_a_lagging_replica_issues_no_token_twice() {
    let mut fence = Fence::new();
    for _ in 0..rounds() {
        let mut master = Redis::start();
        let proxy = Proxy::start(master.address());
        let port = proxy.address().port().to_string();
        let replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
        fence.win(&master.url()).await;
        let has_seat = || replica.ask(&["EXISTS", "tenure:{jobs}:seat"]) == Reply::Number(1);
        tenure_testkit::candidate::until("the replica has the seat", has_seat).await;
        proxy.black_hole(Way::Down);
        fence.win(&master.url()).await;
        fence.win(&master.url()).await;
        master.kill();
        replica.ask(&["REPLICAOF", "NO", "ONE"]);
        fence.win(&replica.url()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_server_issues_no_token_twice() {
    let (redis, mut fence) = (Redis::start(), Fence::new());
    for _ in 0..rounds() {
        fence.win(&redis.url()).await;
        fence.win(&redis.url()).await;
        redis.ask(&["FLUSHALL"]);
        fence.win(&redis.url()).await;
    }
}

/// The complete case: a leader that works until it notices the loss, and a candidate that starts right after the
/// loss and bids at once. Both may lead for a moment, and the resource distinguishes them by their tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_term_was_lost_and_a_new_candidate_have_different_tokens() {
    let mut redis = Redis::start();
    win(&redis.url(), Incarnation::from_bits(1)).await;
    redis.ask(&["SAVE"]);
    let resource = Arc::new(Mutex::new(Resource::default()));
    let detector = OverlapDetector::new();
    let one = stand(&redis.url(), "one", LEASE, &detector);
    let first = work(&one.election, &resource).await;
    redis.kill();
    redis.restart();
    let other = stand(&redis.url(), "other", LEASE, &detector);
    let second = work(&other.election, &resource).await;
    assert!(second > first, "{second} after {first}");
    let by = one.election.candidate().incarnation;
    assert!(!resource.lock().unwrap().write(first, by), "the resource accepts a write of the old leader");
}

/// Waits until the candidate leads, and writes once to the resource.
async fn work(election: &Election, resource: &Mutex<Resource>) -> Token {
    let term = within("the candidate leads", election.elected()).await.unwrap();
    assert!(resource.lock().unwrap().write(term.token(), election.candidate().incarnation));
    term.token()
}
