//! Adds a note instead of replacing the note with the same key.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct KeepsEveryNote(AtomicU64);

impl Defect for KeepsEveryNote {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let key = format!("{}#{}", note.key, self.0.fetch_add(1, Ordering::Relaxed));
        write_one(parts.notes(), NoteWrite { key, ..note.clone() }).await
    }

    async fn list(&self, parts: &Parts, board: &Board) -> Result<Vec<Note>, StoreError> {
        let mut notes = parts.notes().list_one(board).await?;
        for note in &mut notes {
            note.key = note.key.rsplit_once('#').map_or(note.key.clone(), |(key, _)| key.to_owned());
        }
        Ok(notes)
    }
}
