//! From the end of a leader to the term of the next one, both of them here.

use std::time::{Duration, Instant};

use tenure_core::{Election, Elections, Life, SeatName, SeatStore, SingleSeat};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{BenchTarget, Open, show};
use crate::proxy::{Proxy, Way};

fn stand(open: Open, url: &str, name: &str, lease: Duration) -> (Elections, Election) {
    let elections = Elections::new(open(url));
    let election = elections.election(name).lease(lease).start().expect("it starts");
    (elections, election)
}

/// Prints how long it takes from `stop()` of a leader without work to the next one's term.
///
/// # Panics
/// If nobody follows.
pub async fn graceful(target: &dyn BenchTarget, open: Open) {
    let lease = Duration::from_secs(15);
    let mut spans = Vec::new();
    let mut leader = stand(open, &target.url(), "graceful", lease);
    leader.1.elected().await.expect("it runs");
    for _ in 0..100 {
        let next = stand(open, &target.url(), "graceful", lease);
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // It has settled down, and waits.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.expect("it runs");
        spans.push(began.elapsed());
        leader = next;
    }
    show("a leader that stops is followed after", &mut spans);
}

/// Prints how long it takes from `transfer_to` to the work of the candidate that it names, among three that
/// stand and work: asked by the leader's own program, and by another one through the board.
///
/// # Panics
/// If the seat goes to another one.
pub async fn named(target: &dyn BenchTarget, open: Open, rounds: u64) {
    let lease = Duration::from_secs(15);
    let (tell, mut told) = unbounded_channel();
    let mut all = Vec::new();
    for id in ["a", "b", "c"] {
        let elections = Elections::new(open(&target.url()));
        let election = elections.election("named").lease(lease).candidate(id).start().expect("it starts");
        tokio::spawn(work(election.clone(), id, tell.clone()));
        if all.is_empty() {
            election.elected().await.expect("it runs");
        }
        all.push((id, election, elections));
    }
    while all[0].1.candidates().await.expect("a board").len() < all.len() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    told.recv().await.expect("somebody works");
    for (asker, what) in [
        (0, "  a named candidate works, asked for by the leader, after"),
        (2, "  the same, asked for by another, after"),
    ] {
        let mut spans = Vec::new();
        for _ in 0..rounds {
            // Everybody has long settled.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let heir = all[1].0;
            let began = Instant::now();
            all[asker].1.transfer_to(heir).await.expect("there is nothing against it");
            let (who, at) = told.recv().await.expect("somebody works");
            assert_eq!(who, heir, "a third got the seat");
            spans.push(at - began);
            all.rotate_left(1);
        }
        show(what, &mut spans);
    }
    for (_, election, ..) in &all {
        election.stop();
    }
    for (_, election, ..) in &all {
        election.stopped().await;
    }
}

/// Works in every term, and tells when it begins.
async fn work(election: Election, id: &'static str, tell: UnboundedSender<(&'static str, Instant)>) {
    while let Ok(term) = election.elected().await {
        if let Some(work) = term.begin_work() {
            let _ = tell.send((id, Instant::now()));
            term.ending().await;
            drop(work);
        }
        term.ended().await;
    }
}

/// Prints how long it takes from the lapse of a lease, by the server's clock, to the next one's term.
///
/// # Panics
/// If it was followed before its lease had lapsed.
pub async fn past_the_lapse(target: &dyn BenchTarget, open: Open) {
    let lease = Duration::from_secs(1);
    let mut spans = Vec::new();
    let store = SingleSeat::new(open(&target.url()));
    let mut left_out = 0;
    for round in 0..20 {
        let name = format!("crash-{round}");
        let seat = SeatName::new(&name).expect("a name");
        let proxy = Proxy::start(target.address().expect("a server"));
        let leader = stand(open, &target.url_at(&proxy.address().to_string()), &name, lease);
        leader.1.elected().await.expect("it runs");
        let next = stand(open, &target.url(), &name, lease);
        // At any point between two renewals.
        tokio::time::sleep(Duration::from_millis(700 + 37 * round)).await;
        proxy.black_hole(Way::Up);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = Instant::now();
        let seat = SeatStore::read(&store, &seat).await.expect("a reading").seat.expect("a seat");
        if !seat.record.is_held_by(leader.1.candidate().incarnation) {
            // On a machine that is too busy to renew in time, it has been followed before it was cut off. What
            // is read is the seat of the next one, and when that lapses tells nothing.
            left_out += 1;
            continue;
        }
        let Life::Clock { now, renewed } = seat.life else { panic!("no clock") };
        let lapses = asked + lease.saturating_sub(now.checked_since(renewed).unwrap_or_default());
        next.1.elected().await.expect("it runs");
        spans.push(Instant::now().checked_duration_since(lapses).expect("followed before its lease had lapsed"));
    }
    if left_out > 0 {
        println!("{left_out} leaders had lost their seat before they were cut off, and are left out");
    }
    show("a leader that is gone is followed, past the lapse, after", &mut spans);
}

/// Prints how long it takes from the end of a leader's connections, as by the end of its process, to the
/// next one's term: for stores that go by sessions.
///
/// # Panics
/// If nobody follows.
pub async fn after_the_end_of_a_connection(target: &dyn BenchTarget, open: Open) {
    let lease = Duration::from_secs(5);
    let mut spans = Vec::new();
    for round in 0..30 {
        let name = format!("ended-{round}");
        let proxy = Proxy::start(target.address().expect("a server"));
        let leader = stand(open, &target.url_at(&proxy.address().to_string()), &name, lease);
        leader.1.elected().await.expect("it runs");
        let next = stand(open, &target.url(), &name, lease);
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy.refuse();
        let began = Instant::now();
        proxy.reset();
        next.1.elected().await.expect("it runs");
        spans.push(began.elapsed());
    }
    show("a leader whose connection ends is followed after", &mut spans);
}
