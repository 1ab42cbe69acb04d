//! What happens on the board changes neither the seat nor its version.
//!
//! Protects from: a leader that loses its seat, or a follower that waits another lease, because
//! somebody has left a note.

use std::time::Duration;

use tenure_core::{Note, NoteKind};

use super::attend;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("alone");
    let (store, other) = (bench.connect(), bench.connect());
    let board = crate::laws::board_of(&other)?;
    let key = attend(board).await?.to_string();
    let note =
        |kind| Note { kind, key: key.clone(), value: "{}".into(), lifetime: Duration::from_secs(60) };
    // Also before there is a seat.
    board.put(&seat, &note(NoteKind::Announcement)).await?;
    let reading = bench.within("a reading", store.read(&seat)).await??;
    ensure!(reading.seat.is_none(), "a note has made a seat: {:?}", reading.seat);
    let me = candidate("me");
    let held = bench.write(&store, &seat, None, &bench.held(&me, 1)).await?;
    board.put(&seat, &note(NoteKind::Request)).await?;
    board.remove(&seat, NoteKind::Request, &key).await?;
    let seen = bench.read(&store, &seat).await?;
    ensure!(seen.version == held.version, "a note has changed the version of the seat");
    bench.renew(&store, &seat, &held.version, &bench.held(&me, 1)).await?;
    let listed = board.list(&seat, NoteKind::Announcement).await?;
    ensure!(listed.len() == 1, "writing the seat has changed its board: {listed:?}");
    Ok(())
}
