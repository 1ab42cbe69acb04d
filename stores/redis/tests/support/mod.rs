//! Candidates at one desk, whose work tells whether two ever led at once.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

use std::time::Duration;

use tenure_core::{Builder, Candidate, Incarnation, Record, SeatName, SeatStore, Swap, Token};
use tenure_redis::RedisStore;
use tenure_testkit::Desk;
pub(crate) use tenure_testkit::contender::{Contender, acted_above, told, until, within};
use tenure_testkit::servers::Redis;

/// A candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, desk: &Desk) -> Contender {
    stand_with(url, id, lease, desk, |election| election)
}

pub(crate) fn stand_with(
    url: &str,
    id: &str,
    lease: Duration,
    desk: &Desk,
    configure: impl FnOnce(Builder) -> Builder,
) -> Contender {
    Contender::stand(RedisStore::from_url(url).unwrap(), id, desk, |election| configure(election.lease(lease)))
}

/// Waits until as many clients are connected as there are candidates: each has one connection, and those that it
/// gave up after a fault are closed.
pub(crate) async fn one_connection_each(redis: &Redis, candidates: usize) {
    until("each candidate has one connection", || redis.clients() == candidates).await;
}

/// The one seat of a test.
pub(crate) fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

/// A record that names a holder.
pub(crate) fn record(token: u64) -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) };
    Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(token), Duration::from_secs(15)) }
}

/// Takes the seat, whoever had it: what is at this address works.
pub(crate) async fn works(url: &str) {
    let store = RedisStore::from_url(url).unwrap();
    let now = within("an answer", store.read(&seat())).await.unwrap_or_else(|error| panic!("{}", told(&error))).seat;
    let token = now.as_ref().map_or(0, |seat| seat.record.token.get()) + 1;
    let swap = store.swap(&seat(), now.as_ref().map(|seat| &seat.version), &record(token)).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
}
