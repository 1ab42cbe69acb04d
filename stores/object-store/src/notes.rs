//! Notes: objects that expire by the server's clock, if the option `notes` is on.
//!
//! A note costs two requests to write, and a list costs one request and another for each note. An expired note stays until
//! its board is listed by a process that may delete, or until a lifecycle rule of the bucket removes it.

use futures_util::future::try_join_all;
use object_store::path::Path;
use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, Notes, StoreError};

use crate::bucket::{Condition, Object};
use crate::store::{BucketStore, name_of, object_name};

impl Notes for BucketStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        // The promises allow one note in a call.
        for (place, note) in notes.iter().enumerate() {
            to.set(place, self.write_note(note).await);
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        for (place, board) in boards.iter().enumerate() {
            to.set(place, self.list_notes(board).await);
        }
        Ok(())
    }
}

impl BucketStore {
    async fn write_note(&self, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let path = self.bucket.path(&["notes", &board_path(&note.board), &object_name(&note.key)]);
        let before = self.bucket.get(&path).await?.is_some_and(|object| self.lasting(&object).is_some());
        match &note.value {
            Some(value) => {
                // The first line is the lifetime in milliseconds.
                let lifetime = note.lifetime.as_nanos().div_ceil(1_000_000);
                self.bucket.put(&path, &format!("{lifetime}\n{value}"), Condition::None).await?;
            }
            None => self.bucket.delete(&path).await?,
        }
        Ok(if before { NoteState::Present } else { NoteState::Absent })
    }

    async fn list_notes(&self, board: &Board) -> Result<Vec<Note>, StoreError> {
        let objects = self.bucket.list(&self.board(board)).await?;
        let notes = objects.iter().map(async |listed| {
            let object = self.bucket.get(&listed.location).await?;
            let value = object.as_ref().and_then(|object| self.lasting(object));
            if object.is_some() && value.is_none() {
                // Without the right to delete, the note stays, and is not listed.
                let _ = self.bucket.delete(&listed.location).await;
            }
            let key = listed.location.filename().and_then(name_of);
            Ok::<_, StoreError>(key.zip(value).map(|(key, value)| Note { key, value }))
        });
        Ok(try_join_all(notes).await?.into_iter().flatten().collect())
    }

    /// Removes all notes of a board.
    pub(crate) async fn remove_notes(&self, board: &Board) -> Result<(), StoreError> {
        let objects = self.bucket.list(&self.board(board)).await?;
        try_join_all(objects.iter().map(|object| self.bucket.delete(&object.location))).await.map(drop)
    }

    fn board(&self, board: &Board) -> Path {
        self.bucket.path(&["notes", &board_path(board)])
    }

    /// Returns the value of a note that has not expired. Both times are the server's, in whole seconds, so the note lasts
    /// a second longer.
    fn lasting(&self, object: &Object) -> Option<String> {
        let (lifetime, value) = object.text.split_once('\n')?;
        let age = i128::from(self.bucket.clock.now() - object.written) * 1000;
        (age <= lifetime.parse::<i128>().ok()?.saturating_add(1000)).then(|| value.to_owned())
    }
}

fn board_path(board: &Board) -> String {
    let seat = board.seat().map_or("all".to_owned(), |seat| object_name(seat.as_str()));
    format!("{}/{seat}", board.kind())
}
