//! Lists every note as whatever is asked for.

use super::*;

#[derive(Default)]
pub(crate) struct MixesKinds;

impl Bend for MixesKinds {
    async fn list(&self, parts: &Parts, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        let mut notes = Board::list(&parts.store, seat, NoteKind::Request).await?;
        notes.extend(Board::list(&parts.store, seat, NoteKind::Announcement).await?);
        notes.iter_mut().for_each(|note| note.kind = kind);
        Ok(notes)
    }
}
