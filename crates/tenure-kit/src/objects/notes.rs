//! Notes: objects that expire by the server's clock.
//!
//! A note costs two requests to write, and a list costs one request and another for each note. An expired note stays until
//! its board is listed by a process that may delete, or until a lifecycle rule of the bucket removes it.

use futures_util::future::try_join_all;
use tenure_core::{Board, Note, NoteState, NoteWrite, SeatName, StoreError};

use super::{Condition, Object, Objects, name_of, object_name};

/// Puts or removes a note.
///
/// # Errors
/// The error of a request.
pub async fn write(objects: &impl Objects, note: &NoteWrite) -> Result<NoteState, StoreError> {
    let path = format!("{}/{}", folder(&note.board), object_name(&note.key));
    let before = objects.get(&path).await?.is_some_and(|object| lasting(objects, &object).is_some());
    match &note.value {
        Some(value) => {
            // The first line is the lifetime in milliseconds.
            let text = format!("{}\n{value}", note.lifetime.as_nanos().div_ceil(1_000_000));
            if objects.put(&path, &text, Condition::None).await?.is_none() {
                return Err(StoreError::refused("another program has locked the object of a note"));
            }
        }
        None => objects.delete(&path).await?,
    }
    Ok(if before { NoteState::Present } else { NoteState::Absent })
}

/// Lists the notes of a board, and deletes those that have expired.
///
/// # Errors
/// The error of a request.
pub async fn list(objects: &impl Objects, board: &Board) -> Result<Vec<Note>, StoreError> {
    let folder = folder(board);
    let names = objects.list(&folder).await?;
    let notes = names.iter().map(async |(name, _)| {
        let path = format!("{folder}/{name}");
        let object = objects.get(&path).await?;
        let value = object.as_ref().and_then(|object| lasting(objects, object));
        if object.is_some() && value.is_none() {
            // Without the right to delete, the note stays, and is not listed.
            let _ = objects.delete(&path).await;
        }
        Ok::<_, StoreError>(name_of(name).zip(value).map(|(key, value)| Note { key, value }))
    });
    Ok(try_join_all(notes).await?.into_iter().flatten().collect())
}

/// Removes all notes of a seat.
///
/// # Errors
/// The error of a request.
pub async fn remove_all(objects: &impl Objects, seat: &SeatName) -> Result<(), StoreError> {
    for board in [Board::Requests(seat.clone()), Board::Candidates(seat.clone())] {
        let folder = folder(&board);
        let names = objects.list(&folder).await?;
        try_join_all(names.iter().map(async |(name, _)| objects.delete(&format!("{folder}/{name}")).await)).await?;
    }
    Ok(())
}

fn folder(board: &Board) -> String {
    let seat = board.seat().map_or("all".to_owned(), |seat| object_name(seat.as_str()));
    format!("notes/{}/{seat}", board.kind())
}

/// Returns the value of a note that has not expired. Both times are the server's, in whole seconds, so the note lasts a
/// second longer.
fn lasting(objects: &impl Objects, object: &Object) -> Option<String> {
    let (lifetime, value) = object.text.split_once('\n')?;
    let age = i128::from(objects.now() - object.written) * 1000;
    (age <= lifetime.parse::<i128>().ok()?.saturating_add(1000)).then(|| value.to_owned())
}
