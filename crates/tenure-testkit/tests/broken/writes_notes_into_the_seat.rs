//! Writes the seat again whenever somebody leaves a note.

use super::*;

#[derive(Default)]
pub(crate) struct WritesNotesIntoTheSeat;

impl Bend for WritesNotesIntoTheSeat {
    async fn put(&self, parts: &Parts, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        if let Some(now) = SeatStore::read(&parts.store, seat).await?.seat {
            SeatStore::swap(&parts.store, seat, Some(&now.version), &now.record).await?;
        }
        Board::put(&parts.store, seat, note).await
    }
}
