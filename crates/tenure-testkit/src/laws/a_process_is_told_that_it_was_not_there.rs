//! Whoever attends is told whether it was there all along; if it was not, what it puts then is listed.
//!
//! Protects from: a candidate that was paused for long, and stands unseen ever after.

use std::time::Duration;

use tenure_core::{Attended, Incarnation, Note, NoteKind};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("back again");
    let (one, other) = (bench.connect(), bench.connect());
    let (board, reader) = (crate::laws::board_of(&one)?, crate::laws::board_of(&other)?);
    let process = Incarnation::from_bits(rand::random());
    let note = Note {
        kind: NoteKind::Announcement,
        key: process.to_string(),
        value: "{}".into(),
        lifetime: Duration::from_secs(60),
    };
    let attended = board.attend(process, bench.lease() * 60).await?;
    ensure!(attended == Attended::Anew, "a new process was told that it was there all along");
    board.put(&seat, &note).await?;
    let attended = board.attend(process, bench.lease()).await?;
    ensure!(attended == Attended::Still, "a process that has just attended was told that it is new");
    bench
        .until("that who no longer attends is gone", || async {
            Ok(reader.list(&seat, NoteKind::Announcement).await?.is_empty())
        })
        .await?;
    let attended = board.attend(process, bench.lease() * 60).await?;
    ensure!(attended == Attended::Anew, "a process that was gone was told that it was there all along");
    board.put(&seat, &note).await?;
    let listed = reader.list(&seat, NoteKind::Announcement).await?;
    ensure!(listed.len() == 1, "a process came back, but listed are {listed:?}");
    Ok(())
}
