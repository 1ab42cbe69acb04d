//! Leases that are broken or foreign, credentials that end in mid-term, the time of a hand-over, and the number of requests.

use std::time::{Duration, Instant};

use tenure_azure_blob::cost::Load;
use tenure_core::{EndReason, Fault, SeatName, SeatStore, Swap};
use tenure_testkit::{Kit, OverlapDetector};

use crate::azurite;
use crate::support::{LEASE, StandIn, TestCandidate, acted_above, open, record, stand, url_with_sas, within};

/// Adds each scenario as a test.
pub(crate) fn add_to(kit: Kit) -> Kit {
    macro_rules! add {
        ($($scenario:ident),* $(,)?) => {
            kit$(.test(concat!("scenarios::", stringify!($scenario)), || run($scenario())))*
        };
    }
    add![
        a_lease_that_an_operator_breaks_ends_the_term_at_the_next_renewal,
        a_lease_without_an_end_is_reported_and_break_lease_frees_the_seat,
        a_lease_that_another_program_renews_is_reported,
        credentials_that_expire_in_mid_term_end_the_term_and_another_candidate_takes_over,
        a_released_seat_is_taken_at_the_next_poll,
        the_seat_of_a_dead_leader_is_taken_at_the_first_poll_after_the_lapse,
        an_idle_leader_and_two_followers_make_the_requests_of_the_estimate,
        a_seat_that_is_forgotten_while_a_candidate_leads_is_not_taken_before_its_lease_ends,
        a_bid_whose_seat_was_led_and_forgotten_since_it_was_read_cannot_repeat_a_token,
    ]
}

fn run(scenario: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(scenario);
    runtime.shutdown_timeout(Duration::from_millis(100));
}

fn name(seat: &str) -> SeatName {
    SeatName::new(seat).unwrap()
}

async fn a_lease_that_an_operator_breaks_ends_the_term_at_the_next_renewal() {
    let (url, detector) = (azurite().url(), OverlapDetector::new());
    let mut one = stand(&url, "broken", "one", &detector);
    let first = one.leads().await;
    let mut other = stand(&url, "broken", "other", &detector);
    other.knows(first).await;
    let renewals = one.counter.counts().renewals;
    assert!(open(&url).break_lease(&name("broken")).await.unwrap());
    assert_eq!(one.loses().await, (first, EndReason::SessionOver));
    let renewals = one.counter.counts().renewals - renewals;
    assert!(renewals <= 2, "the term survived {renewals} renewals");
    acted_above(&detector, first).await;
    detector.acts_do_not_overlap().unwrap();
    assert!(!open(&url).break_lease(&name("never used")).await.unwrap(), "there is no lease to break");
}

/// Waits until a call is denied, and returns the message. On a busy machine, calls can first fail for other reasons.
async fn denied(candidate: &mut TestCandidate) -> String {
    loop {
        match candidate.fails().await {
            (Fault::Denied, error) => return error,
            (_, error) => println!("not denied yet: {error}"),
        }
    }
}

/// Creates a vacant seat, and returns the path of its blob.
async fn vacant(seat: &str) -> String {
    let store = open(&azurite().url());
    // A long lease leaves calls more time on a busy machine.
    let held = || tenure_core::Record { lease: Duration::from_secs(60), ..record(1) };
    let (held, vacant) = (held(), tenure_core::Record { holder: None, ..held() });
    let Swap::Done { version, .. } = store.swap(&name(seat), None, &held).await.unwrap() else { panic!("it exists") };
    assert!(matches!(store.swap(&name(seat), Some(&version), &vacant).await.unwrap(), Swap::Done { .. }));
    format!("tenure/seats/{seat}")
}

async fn a_lease_without_an_end_is_reported_and_break_lease_frees_the_seat() {
    let (url, detector) = (azurite().url(), OverlapDetector::new());
    let blob = vacant("infinite").await;
    assert_eq!(azurite().lease(&blob, "acquire", &[("x-ms-lease-duration", "-1")]), 201);
    let mut one = stand(&url, "infinite", "one", &detector);
    let error = denied(&mut one).await;
    let expected = "another program holds a lease on the blob azblob://devstoreaccount1/jobs/tenure/seats/infinite";
    assert!(error.contains(expected) && error.contains("tenure break-lease \"infinite\""), "{error}");
    assert!(open(&url).break_lease(&name("infinite")).await.unwrap());
    one.leads().await;
}

async fn a_lease_that_another_program_renews_is_reported() {
    let (url, detector) = (azurite().url(), OverlapDetector::new());
    let blob = vacant("foreign").await;
    let id = ("x-ms-lease-id", "11111111-2222-3333-4444-555555555555");
    let proposed = ("x-ms-proposed-lease-id", id.1);
    assert_eq!(azurite().lease(&blob, "acquire", &[("x-ms-lease-duration", "60"), proposed]), 201);
    let mut one = stand(&url, "foreign", "one", &detector);
    let renewing = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(20)).await;
            azurite().lease(&blob, "renew", &[id]);
        }
    });
    let error = denied(&mut one).await;
    renewing.abort();
    assert!(error.contains("another program holds a lease on the blob"), "{error}");
    assert_eq!(detector.work_spans(), 0);
}

async fn credentials_that_expire_in_mid_term_end_the_term_and_another_candidate_takes_over() {
    let detector = OverlapDetector::new();
    // The signature cannot create the container.
    vacant("expiring").await;
    let sas = url_with_sas(&azurite(), "racwdl", Duration::from_secs(30)).await;
    let mut one = stand(&sas, "expiring", "one", &detector);
    let first = one.leads().await;
    let _other = stand(&azurite().url(), "expiring", "other", &detector);
    let (error, lost) = one.is_denied_and_loses().await;
    assert!(error.contains("rejected the shared access signature: it has expired"), "{error}");
    assert!(!error.contains("sig="), "{error}");
    assert_eq!(lost, first);
    acted_above(&detector, first).await;
    detector.acts_do_not_overlap().unwrap();
}

async fn a_released_seat_is_taken_at_the_next_poll() {
    let (url, detector) = (azurite().url(), OverlapDetector::new());
    let mut one = stand(&url, "released", "one", &detector);
    let first = one.leads().await;
    let mut other = stand(&url, "released", "other", &detector);
    other.knows(first).await;
    one.election.stop();
    one.stopped().await;
    let (released, reads) = (Instant::now(), other.counter.counts().reads);
    assert!(other.leads().await > first);
    println!("taken {:?} after the release; followers poll every {:?}", released.elapsed(), LEASE / 3);
    // A read that was in flight at the release shows the old leader, and the next one shows that the seat is free.
    let polls = other.counter.counts().reads - reads;
    assert!(polls <= 2, "the follower read the seat {polls} times before it took it");
    detector.acts_do_not_overlap().unwrap();
}

async fn the_seat_of_a_dead_leader_is_taken_at_the_first_poll_after_the_lapse() {
    let (url, detector) = (azurite().url(), OverlapDetector::new());
    let mut one = stand(&url, "dead", "one", &detector);
    let first = one.leads().await;
    let mut other = stand(&url, "dead", "other", &detector);
    other.knows(first).await;
    let renewals = one.counter.counts().renewals;
    within("a renewal", one.counter.wait_for(|counts| counts.renewals > renewals)).await;
    one.wire.crash();
    let (crashed, reads) = (Instant::now(), other.counter.counts().reads);
    assert!(other.leads().await > first);
    println!(
        "taken {:?} after the crash, with a lease of {LEASE:?} and a poll every {:?}",
        crashed.elapsed(),
        LEASE / 3
    );
    // Three polls during the lease, one after it, and one that was in flight at either end.
    let polls = other.counter.counts().reads - reads;
    assert!(polls <= 6, "the follower read the seat {polls} times before it took it");
    detector.acts_do_not_overlap().unwrap();
}

async fn an_idle_leader_and_two_followers_make_the_requests_of_the_estimate() {
    let (server, detector) = (StandIn::start(), OverlapDetector::new());
    let mut one = stand(&server.url(), "idle", "one", &detector);
    one.leads().await;
    let followers = ["two", "three"].map(|id| stand(&server.url(), "idle", id, &detector));
    for follower in &followers {
        within("the follower has read the seat", follower.counter.wait_for(|counts| counts.looks > 1)).await;
    }
    let counts = || ["renew", "GET", "PUT", "LIST"].map(|kind| server.count(kind));
    let (before, began, renewals) = (counts(), Instant::now(), one.counter.counts().renewals);
    within("eight renewals", one.counter.wait_for(|counts| counts.renewals >= renewals + 8)).await;
    let (after, hours) = (counts(), began.elapsed().as_secs_f64() / 3600.0);
    let [renewed, read, written, listed] = [0, 1, 2, 3].map(|at| (after[at] - before[at]) as f64);
    let hour = Load { lease: LEASE, candidates: 3, notes: false }.per_hour();
    println!(
        "{renewed} renewals and {read} reads in {:.0} s; estimated {:.1} and {:.1}",
        hours * 3600.0,
        hour.renewals * hours,
        hour.reads * hours
    );
    // The first renewal of a term comes early, and a request of each process can be in flight at either end.
    assert!((renewed - hour.renewals * hours).abs() <= 2.0, "{renewed} renewals");
    assert!((read - hour.reads * hours).abs() <= 4.0, "{read} reads");
    assert_eq!((written, listed), (0.0, 0.0), "an idle election writes nothing");
}

async fn a_seat_that_is_forgotten_while_a_candidate_leads_is_not_taken_before_its_lease_ends() {
    let (one, other, seat) = (open(&azurite().url()), open(&azurite().url()), name("forgotten in mid-term"));
    let held = record(1);
    let Swap::Done { version, .. } = one.swap(&seat, None, &held).await.unwrap() else { panic!("it exists") };
    let won = Instant::now();
    other.forget(&seat).await.unwrap();
    assert_eq!(other.read(&seat).await.unwrap().floor, held.token);
    while !matches!(other.swap(&seat, None, &record(2)).await.unwrap(), Swap::Done { .. }) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(won.elapsed() > LEASE * 9 / 10, "taken {:?} after the first candidate began to lead", won.elapsed());
    assert_eq!(one.renew(&seat, &version, &held).await.unwrap(), Swap::Lost);
}

async fn a_bid_whose_seat_was_led_and_forgotten_since_it_was_read_cannot_repeat_a_token() {
    let (one, other, seat) = (open(&azurite().url()), open(&azurite().url()), name("forgotten meanwhile"));
    assert!(one.read(&seat).await.unwrap().seat.is_none());
    // Between this read and the bid that follows from it, another candidate has led with the token 1.
    vacant(seat.as_str()).await;
    other.forget(&seat).await.unwrap();
    assert_eq!(one.swap(&seat, None, &record(1)).await.unwrap(), Swap::Lost, "the token 1 was issued twice");
    assert!(matches!(one.swap(&seat, None, &record(2)).await.unwrap(), Swap::Done { .. }));
}
