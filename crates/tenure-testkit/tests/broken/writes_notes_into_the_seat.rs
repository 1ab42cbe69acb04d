//! Writes the seat again with every note.

use super::*;

#[derive(Default)]
pub(crate) struct WritesNotesIntoTheSeat;

impl Defect for WritesNotesIntoTheSeat {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<NoteState, StoreError> {
        if let Some(seat) = note.board.seat()
            && let Some(now) = SeatStore::read(&parts.store, seat).await?.seat
        {
            SeatStore::swap(&parts.store, seat, Some(&now.version), &now.record).await?;
        }
        write_one(parts.notes(), note.clone()).await
    }
}
