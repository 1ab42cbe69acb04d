//! The requests of an election, counted by the server, and compared with what `cost` says. Requests follow the lease, so a
//! short lease shows how many there are for 15 s and 60 s.

mod support;

use std::time::{Duration, Instant};

use support::{StandIn, stand, within};
use tenure_object_store::cost::{Load, PRICES};
use tenure_testkit::OverlapDetector;

const LEASE: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_leader_and_two_followers_make_no_more_requests_than_the_estimate() {
    for notes in [false, true] {
        let (bucket, detector) = (StandIn::start(), OverlapDetector::new());
        let url = if notes { format!("{}&notes=true", bucket.s3()) } else { bucket.s3() };
        let mut one = stand(&url, "one", LEASE, &detector);
        one.leads().await;
        let followers = ["two", "three"].map(|id| stand(&url, id, LEASE, &detector));
        for follower in &followers {
            within("the follower has read the seat", follower.counter.wait_for(|counts| counts.looks > 1)).await;
        }
        let renewals = one.counter.counts().renewals;
        within("a renewal", one.counter.wait_for(|counts| counts.renewals > renewals)).await;
        let counts = || ["PUT", "LIST", "GET"].map(|method| bucket.count(method));
        let (before, began, renewals) = (counts(), Instant::now(), one.counter.counts().renewals);
        within("nine renewals", one.counter.wait_for(|counts| counts.renewals >= renewals + 9)).await;
        let (after, hours) = (counts(), began.elapsed().as_secs_f64() / 3600.0);
        let [puts, lists, gets] = [0, 1, 2].map(|at| (after[at] - before[at]) as f64);
        let hour = Load { lease: LEASE, candidates: 3, notes }.per_hour();
        let writes = hour.renewals + hour.writes;
        println!(
            "notes {notes}: {puts} PUT, {lists} LIST, {gets} GET; estimated {:.1} and {:.1}",
            writes * hours,
            hour.reads * hours
        );
        // The first renewal of a term comes early, and a request of each process can be in flight at either end.
        assert!(puts + lists <= writes * hours * 1.1 + 4.0, "{puts} PUT and {lists} LIST");
        assert!(gets <= hour.reads * hours * 1.1 + 6.0, "{gets} GET");
        assert!(puts + lists >= writes * hours * 0.8 - 4.0, "the estimate is too high: {puts} PUT, {lists} LIST");
        assert!(gets >= hour.reads * hours * 0.8 - 6.0, "the estimate is too high: {gets} GET");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_takes_a_released_seat_at_its_next_poll() {
    let (bucket, detector) = (StandIn::start(), OverlapDetector::new());
    let mut one = stand(&bucket.s3(), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&bucket.s3(), "other", LEASE, &detector);
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

#[test]
fn the_estimates_of_the_readme_are_right() {
    let readme = include_str!("../README.md");
    for (seconds, candidates) in [(15, 3), (60, 3), (15, 10), (60, 10)] {
        let load = Load { lease: Duration::from_secs(seconds), candidates, notes: false };
        let (hour, price) = (load.per_hour(), load.per_month().price(&PRICES));
        let row = format!("| {seconds} s | {candidates} | {} | {} | ${price:.2} |", hour.renewals, hour.reads);
        assert!(readme.contains(&row), "the README lacks: {row}");
    }
}
