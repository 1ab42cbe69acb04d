//! Helpers of the tests: candidates that work under an overlap detector, stores, and a stand-in for a bucket.

#![allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]

mod stand_in;

use std::time::Duration;

use tenure_core::{Candidate, Incarnation, Record, SeatName, SeatStore, StoreError, Token};
use tenure_object_store::BucketStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, told, until, within};

pub(crate) use self::stand_in::{StandIn, Trouble};

/// Starts a candidate for the only seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, detector: &OverlapDetector) -> TestCandidate {
    TestCandidate::stand(open(url), id, detector, |election| election.lease(lease))
}

/// Opens the store at this URL.
pub(crate) fn open(url: &str) -> BucketStore {
    BucketStore::from_url(url).unwrap()
}

/// Reads the only seat of a test, and returns the error.
pub(crate) async fn error_of(url: &str) -> StoreError {
    within("the read is answered", SeatStore::read(&open(url), &seat())).await.expect_err("the read must fail")
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
