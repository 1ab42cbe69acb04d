//! A pending request wakes a watch that subscribes to requests, also if the request was put before the watch began.
//! An announced candidate does not wake a watch, and neither does a request that was removed.
//!
//! Protects from: a leader that learns of a request to step down only at its next look.

use tenure_core::{Board, Change, Seen};

use super::LONG;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Push, Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("requests");
    let (leader, asker) = (bench.connect(), bench.connect());
    let notes = super::notes_of(&asker)?;
    let requests = Board::Requests(seat.clone());
    bench.write(&leader, &seat, None, &bench.held(&candidate("leader"), 1)).await?;
    let seen = Seen { seat: Some(bench.read(&leader, &seat).await?), requests: true };

    let (watcher, watched, subscribed) = (leader.clone(), seat.clone(), seen.clone());
    let watch = tokio::spawn(async move { watcher.changed(&watched, &subscribed).await });
    for board in [Board::Candidates(seat.clone()), Board::Processes] {
        notes.put_one(&board, "k", "{}", LONG).await?;
    }
    tokio::time::sleep(bench.lease() / 20).await;
    ensure!(!watch.is_finished(), "the announcement of a candidate or a process woke the leader's watch");
    notes.put_one(&requests, "k", "{}", LONG).await?;
    let change = bench.within("a request wakes the leader's watch", watch).await?;
    ensure!(matches!(change, Ok(Change::Look)), "a request resolved a watch with {change:?}");
    let change = bench.within("a request from before the watch wakes it", leader.changed(&seat, &seen)).await?;
    ensure!(change == Change::Look, "a request resolved a watch with {change:?}");

    notes.remove_one(&requests, "k").await?;
    let seen = Seen { seat: Some(bench.read(&leader, &seat).await?), requests: true };
    // Another connection removed it, so it can take a moment until the leader's connection is notified.
    bench.stays_quiet("a removed request", &leader, &seat, &seen).await
}
