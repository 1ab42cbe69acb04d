//! Helpers of the tests: stores, records and candidates.

#![allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]

use std::time::Duration;

use tenure_core::{Candidate, Fault, Incarnation, Record, SeatName, SeatStore, SingleSeat, StoreError, Swap, Token};
use tenure_sqlserver::SqlServerStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{PATIENCE, TestCandidate, acted_above, within};

/// Short, but long enough for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);

/// The two modes, as options of a URL.
pub(crate) const MODES: [&str; 2] = ["&mode=lease", "&mode=session"];

/// Opens the store at this URL, for calls about one seat at a time.
pub(crate) fn seats_at(url: &str) -> SingleSeat {
    SingleSeat::new(SqlServerStore::from_url(url).unwrap_or_else(|error| panic!("{error}")))
}

/// Starts a candidate that works under the detector whenever it leads.
pub(crate) fn stand(lease: Duration, url: &str, seat: &str, detector: &OverlapDetector) -> TestCandidate {
    let store = SqlServerStore::from_url(url).unwrap_or_else(|error| panic!("{error}"));
    TestCandidate::stand_for(store, seat, detector, |election| election.lease(lease))
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap()
}

/// Returns a record with a holder.
pub(crate) fn held(token: u64, incarnation: u128) -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(incarnation) };
    Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(token), PATIENCE) }
}

/// Takes a seat that does not exist yet.
pub(crate) async fn bid(store: &SingleSeat, seat: &SeatName) -> Result<Swap, StoreError> {
    let floor = store.read(seat).await?.floor;
    store.swap(seat, None, &held(floor.get() + 1, 1)).await
}

/// Reads a seat at this URL, which must fail in this way. Returns the message, with its causes.
#[track_caller]
pub(crate) fn read_error(url: &str, fault: Fault) -> String {
    let error = runtime().block_on(async { seats_at(url).read(&seat("x")).await.expect_err(url) });
    described(&error, fault)
}

/// Checks an error: its fault, and that it is one line without the password. Returns the message, with its causes.
#[track_caller]
pub(crate) fn described(error: &StoreError, fault: Fault) -> String {
    let message = error.to_string();
    assert_eq!(error.fault(), fault, "{message}");
    assert!(!message.contains(['\n', '\r']) && !message.contains("hunter2"), "{message}");
    message
}
