//! What a network and a server can do to elections. Whatever it is, no two ever work at once: every
//! test ends with that, by the moments at which work was done.

mod support;

use std::time::{Duration, Instant};

use support::{acted_above, one_connection_each, record, seat, stand, until, within};
use tenure_core::{Candidate, Event, Fault, Incarnation, Record, SeatName, SeatStore, Swap, Token, Why};
use tenure_redis::RedisStore;
use tenure_testkit::Desk;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Redis, RedisCluster, RedisSentinel, RedisSetup, Reply};

const LEASE: Duration = Duration::from_millis(1500);

fn through(proxy: &Proxy) -> String {
    format!("redis://{}", proxy.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_black_holed_stops_before_another_starts() {
    for way in [Way::Up, Way::Down] {
        let redis = Redis::start();
        let proxy = Proxy::start(redis.address());
        let desk = Desk::new();
        let mut one = stand(&through(&proxy), "one", LEASE, &desk);
        let first = one.leads().await;
        let _other = stand(&redis.url(), "other", LEASE, &desk);
        acted_above(&desk, Token::ZERO).await;
        proxy.black_hole(way);
        assert_eq!(one.loses().await.0, first);
        let second = acted_above(&desk, first).await;
        proxy.pass();
        one.event("it knows who leads now", |event| match event {
            Event::LeaderChanged { leader: Some(leader) } if leader.token >= second => Some(()),
            _ => None,
        })
        .await;
        one_connection_each(&redis, 2).await;
        desk.acts_do_not_overlap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winning_swap_whose_reply_is_lost_is_a_term_all_the_same() {
    let lease = Duration::from_secs(6);
    let redis = Redis::start();
    // The server knows the scripts already: what is lost is the reply to the write itself.
    let desk = Desk::new();
    let warm = stand(&redis.url(), "warm", lease, &desk);
    acted_above(&desk, Token::ZERO).await;
    warm.election.stop();
    within("it stops", warm.election.stopped()).await;
    redis.ask(&["DEL", "tenure:{jobs}:seat"]);

    let proxy = Proxy::start(redis.address());
    proxy.drop_reply_to("\"incarnation\"");
    let desk = Desk::new();
    let began = Instant::now();
    let mut one = stand(&through(&proxy), "one", lease, &desk);
    let token = one.leads().await;
    assert!(began.elapsed() < lease, "it was locked out of its own seat");
    within("the reply was dropped", proxy.caught(1)).await;
    let Reply::Text(holder) = redis.ask(&["HGET", "tenure:{jobs}:seat", "holder"]) else { panic!("no seat") };
    assert!(holder.ends_with(&format!(" {token}")), "the seat names another term: {holder}, not {token}");
    acted_above(&desk, Token::ZERO).await;
    assert_eq!(desk.sittings(), 1);
    // That of the one that went before is open still.
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_cut_in_the_middle_costs_no_term() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let desk = Desk::new();
    let mut one = stand(&through(&proxy), "one", Duration::from_secs(3), &desk);
    one.leads().await;
    within("it renews", one.counter.wait_for(|counts| counts.renewals > 0)).await;
    for (count, (way, marker)) in [(Way::Up, "\"incarnation\""), (Way::Down, ":1\r\n")].into_iter().enumerate() {
        proxy.cut_in_the_middle(way, marker, 2);
        within("a message is cut", proxy.caught(count as u64 + 1)).await;
        let renewals = one.counter.counts().renewals;
        within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
        assert!(one.election.is_leader(), "{way:?}");
    }
    one_connection_each(&redis, 1).await;
    assert_eq!(desk.sittings(), 1, "the term was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_reset_during_renewals_cost_no_term() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let desk = Desk::new();
    let mut one = stand(&through(&proxy), "one", Duration::from_secs(3), &desk);
    one.leads().await;
    let other = stand(&redis.url(), "other", Duration::from_secs(3), &desk);
    for round in 0..8 {
        let renewals = one.counter.counts().renewals;
        proxy.reset();
        within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals)).await;
        assert!(one.election.is_leader() && !other.election.is_leader(), "lost in round {round}");
    }
    one_connection_each(&redis, 2).await;
    assert_eq!(desk.sittings(), 1, "the term was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_pauses_briefly_costs_no_term_and_for_long_costs_one() {
    let lease = Duration::from_secs(2);
    let mut redis = Redis::start();
    let desk = Desk::new();
    let mut one = stand(&redis.url(), "one", lease, &desk);
    let first = one.leads().await;
    let _other = stand(&redis.url(), "other", lease, &desk);
    redis.pause();
    tokio::time::sleep(lease / 4).await;
    redis.resume();
    let renewals = one.counter.counts().renewals;
    within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert_eq!(desk.sittings(), 1, "a pause cost the term");
    redis.pause();
    assert_eq!(one.loses().await.0, first);
    redis.resume();
    acted_above(&desk, first).await;
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

/// A pause makes calls time out, connections and attempts to connect be given up.
#[tokio::test(flavor = "multi_thread")]
async fn connections_do_not_grow_with_faults() {
    let mut redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let desk = Desk::new();
    let candidates = [stand(&redis.url(), "one", LEASE, &desk), stand(&through(&proxy), "other", LEASE, &desk)];
    acted_above(&desk, Token::ZERO).await;
    for round in 0..6 {
        match round % 3 {
            0 => redis.pause(),
            1 => proxy.black_hole(Way::Up),
            _ => proxy.black_hole(Way::Down),
        }
        tokio::time::sleep(LEASE * 3 / 2).await;
        redis.resume();
        proxy.pass();
        let calls = candidates.each_ref().map(|one| one.counter.counts().reads + one.counter.counts().renewals);
        for (one, before) in candidates.iter().zip(calls) {
            within("it asks again", one.counter.wait_for(|counts| counts.reads + counts.renewals > before)).await;
        }
        one_connection_each(&redis, 2).await;
    }
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_server_that_is_killed_and_restarted_costs_no_term() {
    let lease = Duration::from_secs(4);
    let mut redis = RedisSetup::redis().durable().start();
    let desk = Desk::new();
    let mut one = stand(&redis.url(), "one", lease, &desk);
    one.leads().await;
    let other = stand(&redis.url(), "other", lease, &desk);
    within("the other watches", other.counter.wait_for(|counts| counts.looks > 0)).await;
    redis.kill();
    redis.restart();
    let renewals = one.counter.counts().renewals;
    within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert!(one.election.is_leader());
    assert_eq!(desk.sittings(), 1, "the term was lost");
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_empty_is_waited_out_and_tokens_go_on_rising() {
    let mut redis = Redis::start();
    let desk = Desk::new();
    let mut one = stand(&redis.url(), "one", LEASE, &desk);
    let first = one.leads().await;
    let other = stand(&redis.url(), "other", LEASE, &desk);
    within("the other watches", other.counter.wait_for(|counts| counts.looks > 0)).await;
    redis.kill();
    let down = Instant::now();
    redis.restart();
    assert_eq!(one.loses().await.0, first);
    let second = acted_above(&desk, first).await;
    assert!(down.elapsed() >= LEASE, "what was lost was not waited out");
    // A server that has lost everything says how late it is, and that is above what it ever gave out.
    assert!(second.get() > first.get() + 100, "{second} after {first}");
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_server_is_waited_out_and_tokens_go_on_rising() {
    let redis = Redis::start();
    let desk = Desk::new();
    let mut one = stand(&redis.url(), "one", LEASE, &desk);
    let first = one.leads().await;
    let other = stand(&redis.url(), "other", LEASE, &desk);
    within("the other watches", other.counter.wait_for(|counts| counts.looks > 0)).await;
    redis.ask(&["FLUSHALL"]);
    assert_eq!(one.loses().await, (first, Why::SeatVanished));
    assert!(acted_above(&desk, first).await > first);
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_was_evicted_is_told_as_vanished() {
    let redis = Redis::start();
    let desk = Desk::new();
    let mut one = stand(&redis.url(), "one", Duration::from_secs(6), &desk);
    let first = one.leads().await;
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the seat is evicted", || redis.ask(&["DBSIZE"]) == Reply::Number(0)).await;
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(one.loses().await, (first, Why::SeatVanished));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_of_a_seat_that_is_gone_is_lost_and_no_error() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&redis.url()).unwrap();
    let Swap::Done { version, .. } = store.swap(&seat(), None, &record(7)).await.unwrap() else { panic!() };
    redis.ask(&["DEL", "tenure:{jobs}:seat"]);
    assert_eq!(store.renew(&seat(), &version, &record(7)).await.unwrap(), Swap::Lost);
    assert_eq!(redis.ask(&["EXISTS", "tenure:{jobs}:seat"]), Reply::Number(0), "it was made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_nobody_is_told_of_is_found_by_looking() {
    let redis = Redis::start();
    let (seat, desk) = (SeatName::new("jobs").unwrap(), Desk::new());
    let holder = Some(Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) });
    let held = Record { nonce: 1, ..Record::new(holder, Token::new(7), LEASE * 2) };
    let swap = RedisStore::from_url(&redis.url()).unwrap().swap(&seat, None, &held).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
    let mut other = stand(&redis.url(), "other", LEASE, &desk);
    within("it watches", other.counter.wait_for(|counts| counts.looks > 0)).await;
    // It has settled down by then, and heard of what there was to hear.
    tokio::time::sleep(LEASE / 3).await;
    // As a release would, but without a word.
    let vacant = tenure_core::record::to_json(&Record { holder: None, nonce: 2, ..held.clone() });
    redis.ask(&["HSET", "tenure:{jobs}:seat", "nonce", &format!("{:016x}", 2), "record", &vacant, "holder", "- 7"]);
    assert!(other.leads().await > held.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_sentinels_is_followed() {
    let mut trio = RedisSentinel::start();
    let desk = Desk::new();
    let one = stand(&trio.url(), "one", LEASE, &desk);
    let other = stand(&trio.url(), "other", LEASE, &desk);
    let first = acted_above(&desk, Token::ZERO).await;
    trio.servers[0].kill();
    // Longer than a lease: the term ends, and the next one begins on the replica.
    let second = acted_above(&desk, first).await;
    assert_eq!(trio.master(), Some(1));
    assert!(second > first);
    assert!(one.election.is_leader() || other.election.is_leader());
    one_connection_each(&trio.servers[1], 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_leads_by_a_write_that_too_few_replicas_have() {
    let redis = Redis::start();
    let desk = Desk::new();
    let mut one = stand(&format!("{}?min_replicas=1", redis.url()), "one", Duration::from_secs(6), &desk);
    let (fault, told) = one.fails().await;
    assert_eq!(fault, Fault::Unknown);
    assert!(told.contains("not 1 of its replicas"), "{told}");
    let swaps = one.counter.counts();
    within("it tries again", one.counter.wait_for(|c| c.swaps + c.renewals > swaps.swaps + swaps.renewals + 2)).await;
    assert_eq!(desk.sittings(), 0, "it leads by a write that may be lost");
    let port = redis.port().to_string();
    let _replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
    acted_above(&desk, Token::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_has_lost_its_replicas_stops() {
    let redis = Redis::start();
    let port = redis.port().to_string();
    let mut replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
    let desk = Desk::new();
    let url = format!("{}?min_replicas=1", redis.url());
    let mut one = stand(&url, "one", LEASE * 2, &desk);
    let first = one.leads().await;
    let _other = stand(&url, "other", LEASE * 2, &desk);
    replica.kill();
    assert_eq!(one.loses().await.0, first);
    replica.restart();
    acted_above(&desk, first).await;
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_moves_within_a_cluster_costs_no_term() {
    let lease = Duration::from_secs(4);
    let cluster = RedisCluster::start();
    let desk = Desk::new();
    let mut one = stand(&cluster.url(), "one", lease, &desk);
    one.leads().await;
    let other = stand(&cluster.url(), "other", lease, &desk);
    within("the other watches", other.counter.wait_for(|counts| counts.looks > 0)).await;
    cluster.move_key("tenure:{jobs}:seat");
    let renewals = one.counter.counts().renewals;
    within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert!(one.election.is_leader());
    assert_eq!(desk.sittings(), 1, "the term was lost");
    one.election.stop();
    let mut other = other;
    other.leads().await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_revoked_in_mid_term_are_told_and_another_takes_over() {
    let redis = Redis::start();
    redis.ask(&["ACL", "SETUSER", "jobs", "on", ">secret", "~tenure:*", "&tenure:*", "+@all"]);
    let desk = Desk::new();
    let mut one = stand(&format!("redis://jobs:secret@{}", redis.address()), "one", LEASE, &desk);
    let first = one.leads().await;
    let _other = stand(&redis.url(), "other", LEASE, &desk);
    redis.ask(&["ACL", "SETUSER", "jobs", "-evalsha", "-eval"]);
    let (told, lost) = one.is_denied_and_loses().await;
    assert!(told.contains("does not permit this") && !told.contains("secret"), "{told}");
    assert_eq!(lost, first);
    acted_above(&desk, first).await;
    redis.ask(&["ACL", "SETUSER", "jobs", "+evalsha", "+eval"]);
    one.event("it is told that it works again", |event| matches!(event, Event::Recovered).then_some(())).await;
    one_connection_each(&redis, 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_candidates_one_leads_at_a_time() {
    // Long, so that two hundred engines in one process have the time; they do not wait for it.
    let lease = Duration::from_secs(10);
    let redis = Redis::start();
    let desk = Desk::new();
    let candidates: Vec<_> = (0..200).map(|n| stand(&redis.url(), &format!("c{n}"), lease, &desk)).collect();
    let mut token = Token::ZERO;
    for _ in 0..4 {
        token = acted_above(&desk, token).await;
        let leaders: Vec<_> = candidates.iter().filter(|candidate| candidate.election.is_leader()).collect();
        assert!(leaders.len() <= 1, "{} lead at once", leaders.len());
        leaders.iter().for_each(|leader| leader.election.stop());
    }
    desk.acts_do_not_overlap().unwrap();
}
