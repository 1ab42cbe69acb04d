//! A note replaces the note with the same board and key.
//!
//! Protects from: a candidate that is listed once for each time it announced itself.

use tenure_core::Board;

use super::LONG;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let board = Board::Candidates(bench.seat("replaced"));
    let (one, other) = (bench.connect(), bench.connect());
    let (one, other) = (super::notes_of(&one)?, super::notes_of(&other)?);
    for (notes, value) in [(one, "1"), (other, "2"), (one, "3")] {
        notes.put_one(&board, "k", value, LONG).await?;
        let listed = other.list_one(&board).await?;
        ensure!(
            listed.len() == 1 && listed[0].value == value,
            "after {value:?} replaced another note, these are listed: {listed:?}"
        );
    }
    Ok(())
}
