//! Candidates that share one overlap detector.

#![allow(dead_code, unused_imports, reason = "each test program uses some of it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, Builder, Call, Clock, SeatStore, SingleSeat, Store, StoreError, Swap, Write};
use tenure_etcd::EtcdStore;
use tenure_testkit::OverlapDetector;
pub(crate) use tenure_testkit::candidate::{TestCandidate, acted_above, told, until, within};

/// Starts a candidate for the one seat of a test.
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
    TestCandidate::stand(EtcdStore::from_url(url).unwrap(), id, detector, |election| configure(election.lease(lease)))
}

/// Opens a store at this URL that takes one seat at a time.
pub(crate) fn seats(url: &str) -> SingleSeat {
    of(EtcdStore::from_url(url).unwrap_or_else(|error| panic!("{error}")))
}

pub(crate) fn of(store: EtcdStore) -> SingleSeat {
    let store = SingleSeat::new(store);
    SeatStore::attach(&store, &Clock::system());
    store
}

/// Makes one call about several seats, and returns the answer to each.
pub(crate) async fn write(store: &EtcdStore, writes: &[Write]) -> Vec<Result<Swap, StoreError>> {
    let answers = Arc::new(Mutex::new(writes.iter().map(|_| None).collect::<Vec<_>>()));
    let put = answers.clone();
    let to = Answers::new(move |place: usize, answer| {
        put.lock().unwrap()[place].get_or_insert(answer);
    });
    let lease = writes.first().map_or(Duration::ZERO, |write| write.record.lease);
    store.write(&Call { lease, within: lease }, writes, &to).await.unwrap();
    let answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.into_iter().map(|answer| answer.expect("an answer for each seat")).collect()
}
