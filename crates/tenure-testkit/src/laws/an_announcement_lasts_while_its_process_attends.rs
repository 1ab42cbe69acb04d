//! An announcement is listed, as it was put and on whatever seat, for as long as its process attends,
//! and not much longer; it is gone at once when it is removed.
//!
//! Protects from: candidates that are listed long after they have died, and living ones that are not.

use std::time::Duration;

use tenure_core::{Incarnation, Note, NoteKind};

use super::attend;
use crate::bench::now;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (seat, other_seat) = (bench.seat("stands here"), bench.seat("and there"));
    let (one, other) = (bench.connect(), bench.connect());
    let (board, reader) = (crate::laws::board_of(&one)?, crate::laws::board_of(&other)?);
    let note = |process: Incarnation| Note {
        kind: NoteKind::Announcement,
        key: process.to_string(),
        value: r#"{"id":"it's \"odd\" ✓"}"#.into(),
        lifetime: Duration::from_millis(1),
    };
    let stays = attend(board).await?;
    let leaves = Incarnation::from_bits(rand::random());
    let lifetime = bench.lease();
    board.attend(leaves, lifetime).await?;
    for seat in [&seat, &other_seat] {
        board.put(seat, &note(stays)).await?;
        board.put(seat, &note(leaves)).await?;
    }
    let attended = now();
    // A shared heartbeat may be a quarter old; and clocks differ a little.
    let at_least = lifetime * 3 / 4 * 98 / 100;
    board.attend(leaves, lifetime).await?;
    for seat in [&seat, &other_seat] {
        bench
            .until("that who no longer attends is gone", || async {
                let listed = reader.list(seat, NoteKind::Announcement).await?;
                let age = now().since(attended);
                let has = |process: Incarnation| listed.iter().any(|listed| listed.key == process.to_string());
                ensure!(has(stays), "who attends is not listed after {age:?}: {listed:?}");
                ensure!(has(leaves) || age >= at_least, "who has attended {age:?} ago is not listed");
                ensure!(listed.iter().all(|listed| listed.value == note(stays).value), "put was another value: {listed:?}");
                Ok(!has(leaves))
            })
            .await?;
    }
    board.remove(&seat, NoteKind::Announcement, &stays.to_string()).await?;
    let listed = reader.list(&seat, NoteKind::Announcement).await?;
    ensure!(listed.is_empty(), "an announcement was removed, but listed are {listed:?}");
    let listed = reader.list(&other_seat, NoteKind::Announcement).await?;
    ensure!(listed.len() == 1, "an announcement was removed from another board, and here are listed {listed:?}");
    Ok(())
}
