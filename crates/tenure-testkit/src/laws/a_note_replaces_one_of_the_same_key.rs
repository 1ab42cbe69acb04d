//! A note takes the place of one with the same kind and key, with its own lifetime from then on.
//!
//! Protects from: a candidate that is listed many times, once for each time it told of itself.

use std::time::Duration;

use tenure_core::{Note, NoteKind};

use super::attend;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("replaced");
    let (one, other) = (bench.connect(), bench.connect());
    let (one, other) = (crate::laws::board_of(&one)?, crate::laws::board_of(&other)?);
    let process = attend(one).await?;
    for (board, value) in [(one, "1"), (other, "2"), (one, "3")] {
        let note =
            Note { kind: NoteKind::Announcement, key: process.to_string(), value: value.into(), lifetime: Duration::from_secs(60) };
        board.put(&seat, &note).await?;
        let listed = other.list(&seat, NoteKind::Announcement).await?;
        ensure!(
            listed.len() == 1 && listed[0].value == value,
            "after {value:?} was put in place of another, these are listed: {listed:?}"
        );
    }
    Ok(())
}
