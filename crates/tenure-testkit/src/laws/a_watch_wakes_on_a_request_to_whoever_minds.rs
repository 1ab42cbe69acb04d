//! A request on the board wakes the watch of whoever minds requests, also if it lay there before;
//! a candidate that is announced wakes nobody, and neither does a request that was taken off.
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
    let seat = bench.seat("minded");
    let (leader, asker) = (bench.connect(), bench.connect());
    let notes = super::notes_of(&asker)?;
    let requests = Board::Requests(seat.clone());
    bench.write(&leader, &seat, None, &bench.held(&candidate("leader"), 1)).await?;
    let seen = Seen { seat: Some(bench.read(&leader, &seat).await?), requests: true };

    let (watcher, watched, minded) = (leader.clone(), seat.clone(), seen.clone());
    let watch = tokio::spawn(async move { watcher.changed(&watched, &minded).await });
    for board in [Board::Candidates(seat.clone()), Board::Processes] {
        notes.put_one(&board, "k", "{}", LONG).await?;
    }
    tokio::time::sleep(bench.lease() / 20).await;
    ensure!(!watch.is_finished(), "a candidate or a process that announced itself has woken the leader");
    notes.put_one(&requests, "k", "{}", LONG).await?;
    let change = bench.within("that a request wakes the leader's watch", watch).await?;
    ensure!(matches!(change, Ok(Change::Look)), "a request resolved a watch with {change:?}");
    let change = bench.within("that a request which lay there wakes a watch", leader.changed(&seat, &seen)).await?;
    ensure!(change == Change::Look, "a request resolved a watch with {change:?}");

    notes.remove_one(&requests, "k").await?;
    let seen = Seen { seat: Some(bench.read(&leader, &seat).await?), requests: true };
    // Who took it off is somebody else, so it may be a moment until the leader's side has heard of it.
    bench.stays_quiet("a request that was taken off the board", &leader, &seat, &seen).await
}
