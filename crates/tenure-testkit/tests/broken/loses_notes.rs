//! Lists only the note that was put last.

use super::*;

#[derive(Default)]
pub(crate) struct LosesNotes;

impl Bend for LosesNotes {
    async fn list(&self, parts: &Parts, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        Ok(Board::list(&parts.store, seat, kind).await?.pop().into_iter().collect())
    }
}
