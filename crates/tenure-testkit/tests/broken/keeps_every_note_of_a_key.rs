//! Adds a note instead of replacing the one with its key.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct KeepsEveryNote(AtomicU64);

impl Bend for KeepsEveryNote {
    async fn put(&self, parts: &Parts, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        let key = format!("{}#{}", note.key, self.0.fetch_add(1, Ordering::Relaxed));
        Board::put(&parts.store, seat, &Note { key, ..note.clone() }).await
    }

    async fn list(&self, parts: &Parts, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        let mut notes = Board::list(&parts.store, seat, kind).await?;
        for note in &mut notes {
            note.key = note.key.rsplit_once('#').map_or(note.key.clone(), |(key, _)| key.to_owned());
        }
        Ok(notes)
    }
}
