//! Helpers of the tests: candidates that work under an overlap detector, and stores.

#![allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]

use std::time::Duration;

use tenure_core::{Candidate, Incarnation, Record, SeatName, SeatStore, SingleSeat, StoreError, Token};
use tenure_memcached::MemcachedStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, told, until, within};

/// Starts a candidate for the only seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, detector: &OverlapDetector) -> TestCandidate {
    TestCandidate::stand(MemcachedStore::from_url(url).unwrap(), id, detector, |election| election.lease(lease))
}

/// Opens the store at this URL, for calls about one seat at a time.
pub(crate) fn open(url: &str) -> SingleSeat {
    SingleSeat::new(MemcachedStore::from_url(url).unwrap())
}

/// Reads the only seat of a test, and returns the error.
pub(crate) async fn error_of(url: &str) -> StoreError {
    within("the read is answered", open(url).read(&seat())).await.expect_err("the read must fail")
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
