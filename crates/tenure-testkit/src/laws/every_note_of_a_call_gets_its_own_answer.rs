//! A call about many notes puts some and removes others, and a call about many boards lists each board. Every note
//! and every board gets its own answer.
//!
//! Protects from: a candidate that is announced on the board of another election of its process.

use std::time::Duration;

use tenure_core::{Board, DynNotes, NoteState, NoteWrite, StoreError};

use super::{Collected, LONG, collected};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

/// The number of notes, unless the store takes fewer in one call.
const MANY: usize = 40;

pub(super) async fn check(bench: Bench) -> Verdict {
    let (store, promises) = (bench.connect(), bench.promises());
    let notes = super::notes_of(&store)?;
    let board = |number: usize| Board::Candidates(bench.seat(&format!("number {number}")));
    let write = |number: usize, value: Option<&str>| NoteWrite {
        board: board(number),
        key: "k".into(),
        value: value.map(|value| format!("{value} {number}")),
        lifetime: if value.is_some() { LONG } else { Duration::ZERO },
    };
    let writes = MANY.min(promises.writes.seats);
    for number in (0..writes).step_by(2) {
        notes.put_one(&board(number), "k", "old", LONG).await?;
    }
    // Every other note exists. Half of the existing and half of the absent ones are removed.
    let next = |number: usize| write(number, (number % 4 < 2).then_some("new"));
    let answers = written(notes, &(0..writes).map(next).collect::<Vec<_>>()).await?;
    for (number, answer) in answers.iter().enumerate() {
        let expected = if number % 2 == 0 { NoteState::Present } else { NoteState::Absent };
        ensure!(
            matches!(answer, Some(Ok(was)) if *was == expected),
            "note {number} was {expected:?}, but the answer is {answer:?}"
        );
    }
    let boards: Vec<_> = (0..writes.min(promises.reads.seats)).map(board).collect();
    let listed = collected(boards.len(), async |to| notes.list(&boards, to).await).await?;
    for (number, answer) in listed.iter().enumerate() {
        let Some(Ok(listed)) = answer else {
            ensure!(false, "board {number} was answered with {answer:?}");
            continue;
        };
        let values: Vec<_> = listed.iter().map(|note| note.value.clone()).collect();
        let expected: Vec<_> = next(number).value.into_iter().collect();
        ensure!(values == expected, "board {number} has {expected:?}, but {values:?} is listed");
    }
    Ok(())
}

async fn written(notes: &dyn DynNotes, writes: &[NoteWrite]) -> Result<Collected<NoteState>, StoreError> {
    collected(writes.len(), async |to| notes.write(writes, to).await).await
}
