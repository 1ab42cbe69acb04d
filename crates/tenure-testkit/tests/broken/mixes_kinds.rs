//! Lists every note of a seat as whatever is asked for.

use super::*;

#[derive(Default)]
pub(crate) struct MixesKinds;

impl Bend for MixesKinds {
    async fn list(&self, parts: &Parts, board: &Board) -> Result<Vec<Note>, StoreError> {
        let Some(seat) = board.seat() else { return parts.notes().list_one(board).await };
        let mut notes = parts.notes().list_one(&Board::Requests(seat.clone())).await?;
        notes.extend(parts.notes().list_one(&Board::Candidates(seat.clone())).await?);
        Ok(notes)
    }
}
