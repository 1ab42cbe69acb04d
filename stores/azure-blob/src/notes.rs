//! Notes: blobs that expire by the server's clock, if the option `notes` is on.
//!
//! A note costs two requests to write, and a list costs one request and another for each note. An expired note stays until
//! its board is listed by a process that may delete, or until a lifecycle rule of the account removes it.

use futures_util::future::try_join_all;
use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, Notes, StoreError};

use crate::client::{Blob, Condition};
use crate::names::{blob_name, name_of};
use crate::store::AzureBlobStore;

impl Notes for AzureBlobStore {
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

impl AzureBlobStore {
    async fn write_note(&self, note: &NoteWrite) -> Result<NoteState, StoreError> {
        self.ready().await?;
        let path = format!("{}/{}", self.board(&note.board), blob_name(&note.key));
        let before = self.client.get(&path).await?.is_some_and(|blob| self.lasting(&blob).is_some());
        match &note.value {
            Some(value) => {
                // The first line is the lifetime in milliseconds.
                let lifetime = note.lifetime.as_nanos().div_ceil(1_000_000);
                let content = format!("{lifetime}\n{value}");
                if self.client.put(&path, content, Condition::None, None).await?.is_err() {
                    return Err(StoreError::refused("another program holds a lease on a note; break it"));
                }
            }
            None => self.client.delete(&path).await?,
        }
        Ok(if before { NoteState::Present } else { NoteState::Absent })
    }

    async fn list_notes(&self, board: &Board) -> Result<Vec<Note>, StoreError> {
        let board = self.board(board);
        let blobs = self.client.list(&board).await?;
        let notes = blobs.iter().map(async |(name, _)| {
            let path = format!("{board}/{name}");
            let blob = self.client.get(&path).await?;
            let value = blob.as_ref().and_then(|blob| self.lasting(blob));
            if blob.is_some() && value.is_none() {
                // Without the right to delete, the note stays, and is not listed.
                let _ = self.client.delete(&path).await;
            }
            Ok::<_, StoreError>(name_of(name).zip(value).map(|(key, value)| Note { key, value }))
        });
        Ok(try_join_all(notes).await?.into_iter().flatten().collect())
    }

    /// Removes all notes of a board.
    pub(crate) async fn remove_notes(&self, board: &Board) -> Result<(), StoreError> {
        let board = self.board(board);
        let blobs = self.client.list(&board).await?;
        try_join_all(blobs.iter().map(async |(name, _)| self.client.delete(&format!("{board}/{name}")).await))
            .await
            .map(drop)
    }

    fn board(&self, board: &Board) -> String {
        let seat = board.seat().map_or("all".to_owned(), |seat| blob_name(seat.as_str()));
        self.client.path(&["notes", board.kind(), &seat])
    }

    /// Returns the value of a note that has not expired. Both times are the server's, in whole seconds, so the note lasts
    /// a second longer.
    fn lasting(&self, blob: &Blob) -> Option<String> {
        let (lifetime, value) = blob.content.split_once('\n')?;
        let age = i128::from(self.client.now() - blob.written) * 1000;
        (age <= lifetime.parse::<i128>().ok()?.saturating_add(1000)).then(|| value.to_owned())
    }
}
