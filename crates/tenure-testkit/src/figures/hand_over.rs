//! The time from the end of a leader to the next leader's term, with both in this process.

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

/// Measures the time from `stop()` of a leader without work to the next leader's term, and prints it.
///
/// # Panics
/// If no candidate takes over.
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
        // Long enough for the follower to be idle.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.expect("it runs");
        spans.push(began.elapsed());
        leader = next;
    }
    show("next leader after stop()", &mut spans);
}

/// Measures the time from `transfer_to` to the named candidate's work among three candidates, called in the leader's
/// own program and, through the board, in another one. Prints both.
///
/// # Panics
/// If another candidate gets the seat.
pub async fn named(target: &dyn BenchTarget, open: Open, rounds: u64) {
    let lease = Duration::from_secs(15);
    let (sender, mut starts) = unbounded_channel();
    let mut all = Vec::new();
    for id in ["a", "b", "c"] {
        let elections = Elections::new(open(&target.url()));
        let election = elections.election("named").lease(lease).candidate(id).start().expect("it starts");
        tokio::spawn(work(election.clone(), id, sender.clone()));
        if all.is_empty() {
            election.elected().await.expect("it runs");
        }
        all.push((id, election, elections));
    }
    while all[0].1.candidates().await.expect("a board").len() < all.len() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    starts.recv().await.expect("a candidate works");
    for (asker, what) in [
        (0, "  named candidate works after transfer_to in the leader's program"),
        (2, "  named candidate works after transfer_to in another program"),
    ] {
        let mut spans = Vec::new();
        for _ in 0..rounds {
            // Long enough for all candidates to be idle.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let heir = all[1].0;
            let began = Instant::now();
            all[asker].1.transfer_to(heir).await.expect("a possible transfer");
            let (who, at) = starts.recv().await.expect("a candidate works");
            assert_eq!(who, heir, "the third candidate got the seat");
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

/// Works in every term, and sends the moment when the work starts.
async fn work(election: Election, id: &'static str, sender: UnboundedSender<(&'static str, Instant)>) {
    while let Ok(term) = election.elected().await {
        if let Some(work) = term.begin_work() {
            let _ = sender.send((id, Instant::now()));
            term.ending().await;
            drop(work);
        }
        term.ended().await;
    }
}

/// Measures the time from the expiry of a lease, by the server's clock, to the next leader's term, and prints it.
///
/// # Panics
/// If a candidate takes over before the lease has expired.
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
        // Varies the moment between two renewals.
        tokio::time::sleep(Duration::from_millis(700 + 37 * round)).await;
        proxy.black_hole(Way::Up);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = Instant::now();
        let seat = SeatStore::read(&store, &seat).await.expect("a reading").seat.expect("a seat");
        if !seat.record.is_held_by(leader.1.candidate().incarnation) {
            // On a machine that is too busy to renew in time, the leader was replaced before it was cut off. Then the
            // seat belongs to the next leader, and its expiry is not the one to measure from.
            left_out += 1;
            continue;
        }
        let Life::Clock { now, renewed } = seat.life else { panic!("no clock") };
        let lapses = asked + lease.saturating_sub(now.checked_since(renewed).unwrap_or_default());
        next.1.elected().await.expect("it runs");
        spans.push(
            Instant::now().checked_duration_since(lapses).expect("a candidate took over before the lease expired"),
        );
    }
    if left_out > 0 {
        println!("{left_out} rounds skipped: the leader had already lost its seat");
    }
    show("next leader after the lease of a dead one expired", &mut spans);
}

/// Measures the time from the end of a leader's connections, as at the end of its process, to the next leader's term,
/// and prints it. For stores with sessions.
///
/// # Panics
/// If no candidate takes over.
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
    show("next leader after the connection of a leader ended", &mut spans);
}
