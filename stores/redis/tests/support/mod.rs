//! Helpers of the tests: candidates that work under an overlap detector, stores, and calls about many seats.

#![allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{
    Answers, Builder, Call, Candidate, Incarnation, Reading, Record, SeatName, SeatStore, SingleSeat, StoreError, Swap,
    Token, Write,
};
use tenure_redis::RedisStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, told, until, within};
use tenure_testkit::servers::Redis;

/// Starts a candidate for the only seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, detector: &OverlapDetector) -> TestCandidate {
    stand_with(url, id, lease, detector, |election| election)
}

pub(crate) fn stand_with(
    url: &str,
    id: &str,
    lease: Duration,
    detector: &OverlapDetector,
    configure: impl FnOnce(Builder) -> Builder,
) -> TestCandidate {
    TestCandidate::stand(RedisStore::from_url(url).unwrap(), id, detector, |election| configure(election.lease(lease)))
}

/// Waits until the server has as many clients as there are candidates: each has one connection, and has closed
/// those that it replaced after a fault.
pub(crate) async fn one_connection_each(redis: &Redis, candidates: usize) {
    until("each candidate has one connection", || redis.clients() == candidates).await;
}

/// Opens the store at this URL, for calls about one seat at a time.
pub(crate) fn open(url: &str) -> SingleSeat {
    SingleSeat::new(RedisStore::from_url(url).unwrap())
}

/// The answers of a call, one for each seat.
type All<T> = Vec<Result<T, StoreError>>;

/// Reads seats in one call.
pub(crate) async fn read_all(store: &RedisStore, seats: &[SeatName]) -> All<Reading> {
    all(seats.len(), async |to| tenure_core::Store::read(store, &CALL, seats, &to).await).await
}

/// Writes seats in one call.
pub(crate) async fn write_all(store: &RedisStore, writes: &[Write]) -> All<Swap> {
    all(writes.len(), async |to| tenure_core::Store::write(store, &CALL, writes, &to).await).await
}

/// Long enough for replicas on a busy machine: these tests do not measure time.
const CALL: Call = Call { lease: Duration::from_secs(120), within: Duration::from_secs(8) };

async fn all<T: Send + 'static>(count: usize, call: impl AsyncFnOnce(Answers<T>) -> Result<(), StoreError>) -> All<T> {
    let answers = Arc::new(Mutex::new((0..count).map(|_| None).collect::<Vec<_>>()));
    let put = answers.clone();
    let ended = call(Answers::new(move |place, answer| put.lock().unwrap()[place] = Some(answer))).await;
    let unanswered = || Err(ended.clone().expect_err("all seats are answered"));
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
}

/// Returns the only seat of a test.
pub(crate) fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

/// Returns a record with a holder.
pub(crate) fn record(token: u64) -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) };
    Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(token), Duration::from_secs(15)) }
}

/// Takes the seat, whether or not it is held, to show that the store at this URL works.
pub(crate) async fn works(url: &str) {
    let store = open(url);
    let now = within("the read is answered", store.read(&seat()))
        .await
        .unwrap_or_else(|error| panic!("{}", told(&error)))
        .seat;
    let token = now.as_ref().map_or(0, |seat| seat.record.token.get()) + 1;
    let swap = store.swap(&seat(), now.as_ref().map(|seat| &seat.version), &record(token)).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
}
