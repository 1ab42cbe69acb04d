//! Steps of the server's clock. A test cannot step the clock of a Redis server alone, which is that of the
//! machine (libfaketime breaks the server, and a time namespace has no wall clock of its own). But the only
//! effect of a step on the store is that the time of the last write is off from the server's time by the width of
//! the step. So the tests write that time into the seat, after every renewal.

mod support;

use std::time::{Duration, Instant};

use support::{acted_above, stand, within};
use tenure_core::Token;
use tenure_testkit::OverlapDetector;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::Redis;

const LEASE: Duration = Duration::from_millis(1500);

/// Makes the last write as old as it would be after a step of the clock by `seconds`, forward if positive.
fn step(redis: &Redis, seconds: i64) {
    let at = redis.ask(&["HGET", "tenure:{jobs}:seat", "at"]);
    let (written, micros) = at.text().split_once(' ').expect("a time");
    // A time that is already stepped stays as it is.
    let now = redis.ask(&["TIME"]);
    let tenure_testkit::servers::Reply::List(now) = now else { panic!("no time") };
    let (written, now): (i64, i64) = (written.parse().unwrap(), now[0].text().parse().unwrap());
    if (written - now).abs() < 100 {
        redis.ask(&["HSET", "tenure:{jobs}:seat", "at", &format!("{} {micros}", written - seconds)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_the_clock_during_a_term_costs_no_term_and_makes_no_second_leader() {
    for seconds in [300, -300] {
        let redis = Redis::start();
        let detector = OverlapDetector::new();
        let mut one = stand(&redis.url(), "one", LEASE, &detector);
        one.leads().await;
        let other = stand(&redis.url(), "other", LEASE, &detector);
        within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
        let reads = other.counter.counts().reads;
        let began = Instant::now();
        while began.elapsed() < LEASE * 3 || other.counter.counts().reads < reads + 2 {
            step(&redis, seconds);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(one.election.is_leader() && !other.election.is_leader(), "stepped by {seconds} s");
        assert_eq!(detector.work_spans(), 1, "stepped by {seconds} s");
        detector.acts_do_not_overlap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_takes_over_after_the_lease_despite_a_step_of_the_clock() {
    for seconds in [300, -300] {
        let redis = Redis::start();
        let proxy = Proxy::start(redis.address());
        let detector = OverlapDetector::new();
        let mut one = stand(&format!("redis://{}", proxy.address()), "one", LEASE, &detector);
        let first = one.leads().await;
        let other = stand(&redis.url(), "other", LEASE, &detector);
        acted_above(&detector, Token::ZERO).await;
        within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
        proxy.black_hole(Way::Up);
        step(&redis, seconds);
        assert_eq!(one.loses().await.0, first);
        acted_above(&detector, first).await;
        detector.acts_do_not_overlap().unwrap();
    }
}
