//! A write of a note reports whether the note existed: not before it was put, and not after it was removed or has
//! expired.
//!
//! Protects from: a store that has lost all its notes unnoticed, and a process that was paused until its notes expired, so
//! that a candidate stays unlisted from then on.

use tenure_core::{Board, NoteState};

use super::LONG;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (one, other) = (bench.connect(), bench.connect());
    let (one, other) = (super::notes_of(&one)?, super::notes_of(&other)?);
    let key = format!("{:016x}", rand::random::<u64>());
    for board in [Board::Processes, Board::Candidates(bench.seat("here")), Board::Requests(bench.seat("here"))] {
        let put = async |lifetime| one.put_one(&board, &key, "{}", lifetime).await;
        let was = put(LONG).await?;
        ensure!(was == NoteState::Absent, "on {board:?}, the first write of a note reported that it existed");
        for notes in [other, one] {
            let was = notes.put_one(&board, &key, "{}", LONG).await?;
            ensure!(was == NoteState::Present, "on {board:?}, a second write of a note reported that it did not exist");
        }
        let was = other.remove_one(&board, &key).await?;
        ensure!(was == NoteState::Present, "on {board:?}, the removal of a note reported that it did not exist");
        let was = put(bench.lease()).await?;
        ensure!(was == NoteState::Absent, "on {board:?}, a write after the removal reported that the note existed");
        bench
            .until("the note expires", || async {
                Ok(other.list_one(&board).await?.iter().all(|note| note.key != key))
            })
            .await?;
        let was = put(LONG).await?;
        ensure!(was == NoteState::Absent, "on {board:?}, a write after the note expired reported that it existed");
        let listed = other.list_one(&board).await?;
        let count = listed.iter().filter(|note| note.key == key).count();
        ensure!(count == 1, "on {board:?}, a note was put again after it expired, and is listed {count} times");
    }
    Ok(())
}
