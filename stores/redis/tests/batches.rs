//! Calls about many seats: each seat gets its own answer, independent of the other seats.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{read_all, record, seat, told, within, write_all};
use tenure_core::{Expect, Fault, SeatName, SeatStore, SingleSeat, Swap, Token, Version, Write};
use tenure_redis::RedisStore;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Redis, RedisCluster, RedisSetup, Reply};

#[tokio::test]
async fn one_invalid_seat_does_not_fail_the_others() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&redis.url()).unwrap();
    redis.ask(&["SET", "tenure:{seat-50}:seat", "of another library"]);
    let seats = seats(100);
    for (n, swap) in write_all(&store, &bids(&seats)).await.into_iter().enumerate() {
        match swap {
            Ok(swap) => assert!(n != 50 && matches!(swap, Swap::Done { .. }), "seat {n}: {swap:?}"),
            Err(error) => assert!(n == 50 && error.fault() == Fault::Denied, "seat {n}: {}", told(&error)),
        }
    }
    for (n, reading) in read_all(&store, &seats).await.into_iter().enumerate() {
        match reading {
            Ok(reading) => assert_eq!(reading.seat.unwrap().record.token, Token::new(n as u64 + 1)),
            Err(error) => assert!(n == 50 && error.fault() == Fault::Denied, "seat {n}: {}", told(&error)),
        }
    }
}

#[tokio::test]
async fn each_write_of_a_call_has_a_condition_of_its_own() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&redis.url()).unwrap();
    let seats = seats(40);
    let versions = done(write_all(&store, &bids(&seats)).await);
    let swap = |n: usize| {
        let (version, other) = (versions[n].clone(), versions[(n + 1) % 40].clone());
        let (expect, token) = match n % 4 {
            0 => (Expect::Version(version), n + 1),
            1 => (Expect::Held(version), n + 1),
            2 => (Expect::Version(other), n + 1),
            // The right holder, but another term.
            _ => (Expect::Held(version), n + 2),
        };
        Write { seat: seats[n].clone(), expect, record: record(token as u64) }
    };
    let swaps = write_all(&store, &(0..40).map(swap).collect::<Vec<_>>()).await;
    for (n, swap) in swaps.into_iter().enumerate() {
        assert_eq!(matches!(swap.unwrap(), Swap::Done { .. }), n % 4 < 2, "seat {n}");
    }
}

#[tokio::test]
async fn the_seats_of_a_call_share_one_round_trip() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&redis.url()).unwrap();
    read_all(&store, &seats(1)).await;
    let reads = || redis.info("stats", "total_reads_processed").parse::<u64>().unwrap();
    let before = reads();
    for answer in read_all(&store, &seats(500)).await {
        answer.unwrap();
    }
    // A few socket reads, as the pipeline is larger than the server's buffer.
    let round_trips = reads() - before;
    assert!(round_trips <= 20, "the server read {round_trips} times from its socket for 500 seats");
}

#[tokio::test]
async fn dropped_calls_do_not_affect_other_calls() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = SingleSeat::new(RedisStore::from_url(&format!("redis://{}", proxy.address())).unwrap());
    let seats = seats(50);
    store.read(&seats[0]).await.unwrap();
    proxy.delay(Way::Down, Duration::from_millis(100));
    let reads = seats.iter().enumerate().map(|(n, seat)| {
        let read = store.read(seat);
        async move {
            if n % 2 == 0 { Some(read.await) } else { tokio::time::timeout(Duration::from_millis(1), read).await.ok() }
        }
    });
    let answers = within("the other calls are answered", join_all(reads)).await;
    let answered = answers.iter().flatten().filter(|answer| answer.is_ok()).count();
    assert_eq!(answered, 25, "not all calls that were awaited were answered");
}

#[tokio::test]
async fn a_lost_connection_makes_the_outcome_unknown_for_every_seat() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = RedisStore::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let seats = seats(50);
    read_all(&store, &seats[..1]).await;
    proxy.black_hole(Way::Down);
    let bids = bids(&seats);
    let cut = async {
        while redis.calls("hset") < 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.reset();
    };
    let (swaps, ()) = within("all seats are answered", async { tokio::join!(write_all(&store, &bids), cut) }).await;
    for swap in swaps {
        let error = swap.unwrap_err();
        assert_eq!(error.fault(), Fault::Unknown, "{}", told(&error));
    }
    proxy.pass();
    // The server applied all of them, and the store works again.
    for reading in read_all(&store, &seats).await {
        assert!(reading.unwrap().seat.is_some());
    }
}

#[tokio::test]
async fn a_release_does_not_wait_for_replicas_even_beside_a_bid() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&format!("{}?min_replicas=1", redis.url())).unwrap();
    let mut bids = bids(&seats(2));
    bids[1].record.holder = None;
    let [bid, release] = write_all(&store, &bids).await.try_into().unwrap();
    assert_eq!(bid.unwrap_err().fault(), Fault::Unknown);
    assert!(matches!(release, Ok(Swap::Done { .. })), "{release:?}");
}

#[tokio::test]
async fn the_writes_of_a_call_wait_for_replicas_together() {
    let redis = Redis::start();
    let port = redis.port().to_string();
    let _replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
    let store = RedisStore::from_url(&format!("{}?min_replicas=1", redis.url())).unwrap();
    let is_online = || redis.info("replication", "slave0").contains("state=online");
    support::until("the replica is online", is_online).await;
    let waits = redis.calls("wait");
    done(write_all(&store, &bids(&seats(50))).await);
    assert_eq!(redis.calls("wait") - waits, 1);
}

#[tokio::test]
async fn a_call_answers_seats_of_several_nodes_and_seats_that_have_moved() {
    let cluster = RedisCluster::start();
    let store = RedisStore::from_url(&cluster.url()).unwrap();
    let seats = seats(60);
    let versions = done(write_all(&store, &bids(&seats)).await);
    let shards = |seat: &SeatName| tenure_core::Store::shard(&store, seat);
    assert_eq!(
        seats.iter().map(shards).collect::<std::collections::BTreeSet<_>>().len(),
        3,
        "there is not one shard for each node"
    );
    for seat in &seats[..5] {
        cluster.move_key(&format!("tenure:{{{seat}}}:seat"));
    }
    // A read follows the redirection at once, as the first node has not run it.
    for (n, reading) in read_all(&store, &seats).await.into_iter().enumerate() {
        let reading = reading.unwrap_or_else(|error| panic!("seat {n}: {}", told(&error)));
        assert_eq!(reading.seat.unwrap().record.token, Token::new(n as u64 + 1));
    }
    // A write does not follow it, as its condition was read from another node.
    let renew = |(n, version): (usize, &Version)| {
        let expect = Expect::Held(version.clone());
        Write { seat: seats[n].clone(), expect, record: record(n as u64 + 1) }
    };
    let renewals: Vec<_> = versions.iter().enumerate().map(renew).collect();
    for (n, swap) in write_all(&store, &renewals).await.into_iter().enumerate() {
        assert_eq!(swap.unwrap() == Swap::Lost, n < 5, "seat {n}");
    }
}

#[tokio::test]
async fn a_seat_that_is_being_moved_is_read_from_its_new_node() {
    let cluster = RedisCluster::start();
    let store = SingleSeat::new(RedisStore::from_url(&cluster.url()).unwrap());
    assert!(matches!(store.swap(&seat(), None, &record(7)).await, Ok(Swap::Done { .. })));
    // The next node already has the key, but not yet the slot.
    let key = "tenure:{jobs}:seat";
    let Reply::Number(slot) = cluster.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]) else { panic!("no slot") };
    let slot = slot.to_string();
    let from = cluster.nodes.iter().position(|node| node.ask(&["EXISTS", key]) == Reply::Number(1)).unwrap();
    let (from, to) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
    let [from_id, to_id] = [from, to].map(|node| node.ask(&["CLUSTER", "MYID"]).text().to_owned());
    assert_eq!(to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).text(), "OK");
    assert_eq!(from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).text(), "OK");
    assert_eq!(from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]).text(), "OK");
    for _ in 0..2 {
        let read = store.read(&seat()).await.unwrap_or_else(|error| panic!("{}", told(&error)));
        assert_eq!(read.seat.unwrap().record.token, Token::new(7));
    }
}

/// Returns bids for seats that do not exist yet.
fn bids(seats: &[SeatName]) -> Vec<Write> {
    let bid = |(n, seat): (usize, &SeatName)| {
        let record = record(n as u64 + 1);
        Write { seat: seat.clone(), expect: Expect::Absent(None), record }
    };
    seats.iter().enumerate().map(bid).collect()
}

/// Returns the versions that were written. All swaps must be done.
fn done(swaps: Vec<Result<Swap, tenure_core::StoreError>>) -> Vec<Version> {
    let version = |swap| match swap {
        Ok(Swap::Done { version, .. }) => version,
        other => panic!("{other:?}"),
    };
    swaps.into_iter().map(version).collect()
}

fn seats(count: usize) -> Vec<SeatName> {
    (0..count).map(|n| SeatName::new(format!("seat-{n}")).unwrap()).collect()
}
