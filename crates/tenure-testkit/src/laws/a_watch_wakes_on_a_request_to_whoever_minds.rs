//! A request on the board wakes the watch of whoever minds requests, also if it lay there before;
//! an announcement wakes nobody, and neither does a request that was taken off.
//!
//! Protects from: a leader that learns of a request to step down only at its next look.

use std::time::Duration;

use tenure_core::{Change, Note, NoteKind, Seen};

use super::attend;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Push, Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("minded");
    let (leader, asker) = (bench.connect(), bench.connect());
    // Before there is a session that is not kept.
    let board = asker.board().ok_or_else(|| Failure::new("the store has a board only at times"))?;
    let key = attend(board).await?.to_string();
    bench.write(&leader, &seat, None, &bench.held(&candidate("leader"), 1)).await?;
    let seen = Seen { seat: Some(bench.read(&leader, &seat).await?), requests: true };
    let note = |kind| Note { kind, key: key.clone(), value: "{}".into(), lifetime: Duration::from_secs(60) };

    let (watcher, watched, minded) = (leader.clone(), seat.clone(), seen.clone());
    let watch = tokio::spawn(async move { watcher.changed(&watched, &minded).await });
    board.put(&seat, &note(NoteKind::Announcement)).await?;
    tokio::time::sleep(bench.lease() / 20).await;
    ensure!(!watch.is_finished(), "an announcement has woken the leader");
    board.put(&seat, &note(NoteKind::Request)).await?;
    let change = bench.within("that a request wakes the leader's watch", watch).await?;
    ensure!(matches!(change, Ok(Change::Look)), "a request resolved a watch with {change:?}");
    let change = bench.within("that a request which lay there wakes a watch", leader.changed(&seat, &seen)).await?;
    ensure!(change == Change::Look, "a request resolved a watch with {change:?}");

    board.remove(&seat, NoteKind::Request, &key).await?;
    let seen = Seen { seat: Some(bench.read(&leader, &seat).await?), requests: true };
    // Who took it off is somebody else, so it may be a moment until the leader's side has heard of it.
    bench.stays_quiet("a request that was taken off the board", &leader, &seat, &seen).await
}
