//! Helpers of the tests: candidates that work under an overlap detector, stores and records.

#![allow(dead_code, unused_imports, reason = "each test program uses some of the helpers")]

use std::time::Duration;

use tenure_core::{Builder, Candidate, Incarnation, Record, SingleSeat, Takeover, Token};
use tenure_mysql::MysqlStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{PATIENCE, TestCandidate, acted_above, leading, within};
use tenure_testkit::servers::Mysql;

/// Short, but long enough for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);

/// The two modes, as suffixes of a URL.
pub(crate) const MODES: [&str; 2] = ["?mode=lease", "?mode=session"];

/// Starts a candidate that works under the detector whenever it leads.
pub(crate) fn stand(url: &str, seat: &str, detector: &OverlapDetector) -> TestCandidate {
    stand_for(LEASE, url, seat, detector)
}

/// Starts a candidate with `takeover=safe`, which waits until a leader whose session ended must have stopped. With
/// `takeover=instant` the two may overlap until the old leader notices, as the promises say.
pub(crate) fn stand_safely(url: &str, seat: &str, detector: &OverlapDetector) -> TestCandidate {
    stand_with(url, seat, detector, |election| election.lease(LEASE).takeover(Takeover::Safe))
}

pub(crate) fn stand_for(lease: Duration, url: &str, seat: &str, detector: &OverlapDetector) -> TestCandidate {
    stand_with(url, seat, detector, |election| election.lease(lease))
}

fn stand_with(
    url: &str,
    seat: &str,
    detector: &OverlapDetector,
    configure: impl FnOnce(Builder) -> Builder,
) -> TestCandidate {
    TestCandidate::stand_for(
        MysqlStore::from_url(url).unwrap_or_else(|error| panic!("{error}")),
        seat,
        detector,
        configure,
    )
}

/// Opens the store at this URL, for calls about one seat at a time.
pub(crate) fn seats_at(url: &str) -> SingleSeat {
    SingleSeat::new(MysqlStore::from_url(url).unwrap_or_else(|error| panic!("{error}")))
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Returns the token of a seat in the server's tables.
pub(crate) fn token_of(server: &Mysql, seat: &str) -> Token {
    Token::new(server.sql(&format!("SELECT token FROM tenure_seats WHERE name = '{seat}'")).parse().unwrap())
}

/// Returns a record with a holder.
pub(crate) fn held(token: u64, incarnation: u128) -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(incarnation) };
    Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(token), PATIENCE) }
}
