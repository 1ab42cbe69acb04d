//! Notes, if the option `notes` is on.

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, Notes, StoreError};
use tenure_kit::objects::notes;

use crate::store::{AzureBlobStore, LONGEST_LEASE};

impl Notes for AzureBlobStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        self.ready(LONGEST_LEASE).await?;
        // The promises allow one note in a call.
        for (place, note) in notes.iter().enumerate() {
            to.set(place, notes::write(&*self.client, note).await);
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        for (place, board) in boards.iter().enumerate() {
            to.set(place, notes::list(&*self.client, board).await);
        }
        Ok(())
    }
}
