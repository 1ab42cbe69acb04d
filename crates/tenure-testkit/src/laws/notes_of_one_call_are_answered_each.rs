//! A call about many notes puts some and removes others, and a call about many boards lists each: every one has its own
//! answer.
//!
//! Protects from: a candidate that is announced on the board of another election of its process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, Board, DynNotes, NoteWrite, StoreError, NoteState};

use super::LONG;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

/// So many, unless the store takes fewer in one call.
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
    // Every other one is there, and half of each are removed.
    let next = |number: usize| write(number, (number % 4 < 2).then_some("new"));
    let answers = written(notes, &(0..writes).map(next).collect::<Vec<_>>()).await?;
    for (number, answer) in answers.iter().enumerate() {
        let expected = if number % 2 == 0 { NoteState::Present } else { NoteState::Absent };
        ensure!(matches!(answer, Some(Ok(was)) if *was == expected), "note {number} was {expected:?}, and is {answer:?}");
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
        ensure!(values == expected, "on board {number} is {expected:?}, and listed is {values:?}");
    }
    Ok(())
}

type Collected<T> = Vec<Option<Result<T, StoreError>>>;

async fn written(notes: &dyn DynNotes, writes: &[NoteWrite]) -> Result<Collected<NoteState>, StoreError> {
    collected(writes.len(), async |to| notes.write(writes, to).await).await
}

/// Makes a call, and returns the answers to it by their places.
async fn collected<T: Clone + Send + 'static>(
    count: usize,
    call: impl AsyncFnOnce(&Answers<T>) -> Result<(), StoreError>,
) -> Result<Collected<T>, StoreError> {
    let answers = Arc::new(Mutex::new(vec![None; count]));
    let told = answers.clone();
    let to = Answers::new(move |place, answer| {
        if let Some(slot) = told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_mut(place) {
            *slot = Some(answer);
        }
    });
    call(&to).await?;
    let answers = answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(answers.clone())
}
