//! A request or a candidate that was put is listed unchanged, from every connection, until it is removed. Removing a
//! note that does not exist is not an error.
//!
//! Protects from: requests that get lost, requests that the leader follows again and again, and candidates whose
//! metadata is listed as another text.

use tenure_core::{Board, DynNotes, Note};

use super::LONG;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (one, other) = (bench.connect(), bench.connect());
    let (one, other) = (super::notes_of(&one)?, super::notes_of(&other)?);
    let seat = bench.seat("notes");
    for board in [Board::Requests(seat.clone()), Board::Candidates(seat)] {
        stay(one, other, &board).await?;
    }
    let empty: Vec<Note> = one.list_one(&Board::Requests(bench.seat("no notes"))).await?;
    ensure!(empty.is_empty(), "an empty board lists {empty:?}");
    Ok(())
}

/// Checks the notes of one board.
async fn stay(one: &dyn DynNotes, other: &dyn DynNotes, board: &Board) -> Verdict {
    let note = |key: &str, value: &str| Note { key: key.into(), value: value.into() };
    let notes = [note("a", r#"{"n":1}"#), note("odd/key 'x' % 选", r#"{"text":"it's \"odd\" ✓"}"#), note("A", "{}")];
    for note in &notes {
        one.put_one(board, &note.key, &note.value, LONG).await?;
    }
    for reader in [one, other] {
        let mut listed = reader.list_one(board).await?;
        ensure!(
            listed.len() == notes.len(),
            "{} notes were put, but {} are listed: {listed:?}",
            notes.len(),
            listed.len()
        );
        listed.retain(|listed| !notes.contains(listed));
        ensure!(listed.is_empty(), "notes are listed on {board:?} that were never put: {listed:?}");
    }
    other.remove_one(board, "a").await?;
    other.remove_one(board, "a").await?;
    other.remove_one(board, "never there").await?;
    let listed = one.list_one(board).await?;
    ensure!(
        listed.len() == 2 && listed.iter().all(|note| note.key != "a"),
        "after a note was removed, these are listed: {listed:?}"
    );
    Ok(())
}
