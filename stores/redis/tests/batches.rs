//! Calls that go out together: each gets its own answer, whatever becomes of the others.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{record, told, within};
use tenure_core::{Fault, SeatName, SeatStore, Swap, Token};
use tenure_redis::RedisStore;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::Redis;

#[tokio::test]
async fn a_bad_seat_among_many_fails_alone() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&redis.url()).unwrap();
    redis.ask(&["SET", "tenure:{seat-50}:seat", "of another library"]);
    let seats = seats(100);
    let swaps = seats.iter().enumerate().map(|(n, seat)| {
        let (store, record) = (&store, record(n as u64 + 1));
        async move { store.swap(seat, None, &record).await }
    });
    for (n, swap) in join_all(swaps).await.into_iter().enumerate() {
        match swap {
            Ok(swap) => assert!(n != 50 && matches!(swap, Swap::Done { .. }), "seat {n}: {swap:?}"),
            Err(error) => assert!(n == 50 && error.fault() == Fault::Denied, "seat {n}: {}", told(&error)),
        }
    }
    for (n, reading) in join_all(seats.iter().map(|seat| store.read(seat))).await.into_iter().enumerate() {
        match reading {
            Ok(reading) => assert_eq!(reading.seat.unwrap().record.token, Token::new(n as u64 + 1)),
            Err(error) => assert!(n == 50 && error.fault() == Fault::Denied, "seat {n}: {}", told(&error)),
        }
    }
}

#[tokio::test]
async fn calls_made_at_the_same_time_are_one_round_trip() {
    let redis = Redis::start();
    let store = RedisStore::from_url(&redis.url()).unwrap();
    store.read(&seats(1)[0]).await.unwrap();
    let reads = || redis.info("stats", "total_reads_processed").parse::<u64>().unwrap();
    let before = reads();
    for answer in join_all(seats(500).iter().map(|seat| store.read(seat))).await {
        answer.unwrap();
    }
    // What they send is larger than what a server reads at once.
    let round_trips = reads() - before;
    assert!(round_trips <= 20, "{round_trips} reads of the server for 500 of ours");
}

#[tokio::test]
async fn calls_that_are_given_up_hurt_no_others() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = RedisStore::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let seats = seats(50);
    store.read(&seats[0]).await.unwrap();
    proxy.delay(Way::Down, Duration::from_millis(100));
    let reads = seats.iter().enumerate().map(|(n, seat)| {
        let read = store.read(seat);
        async move {
            if n % 2 == 0 { Some(read.await) } else { tokio::time::timeout(Duration::from_millis(1), read).await.ok() }
        }
    });
    let answers = within("the others are answered", join_all(reads)).await;
    let answered = answers.iter().flatten().filter(|answer| answer.is_ok()).count();
    assert_eq!(answered, 25, "of 25 that were waited for");
}

#[tokio::test]
async fn when_the_connection_is_lost_every_call_is_told_that_it_is_unknown() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = RedisStore::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let seats = seats(50);
    store.read(&seats[0]).await.unwrap();
    proxy.black_hole(Way::Down);
    let swaps = join_all(seats.iter().map(|seat| {
        let (store, record) = (&store, record(1));
        async move { store.swap(seat, None, &record).await }
    }));
    let cut = async {
        while redis.calls("hset") < 50 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.reset();
    };
    let (swaps, ()) = within("all are told", async { tokio::join!(swaps, cut) }).await;
    for swap in swaps {
        let error = swap.unwrap_err();
        assert_eq!(error.fault(), Fault::Unknown, "{}", told(&error));
    }
    proxy.pass();
    // All of them were applied, and the store works again.
    for reading in join_all(seats.iter().map(|seat| store.read(seat))).await {
        assert!(reading.unwrap().seat.is_some());
    }
}

fn seats(count: usize) -> Vec<SeatName> {
    (0..count).map(|n| SeatName::new(format!("seat-{n}")).unwrap()).collect()
}
