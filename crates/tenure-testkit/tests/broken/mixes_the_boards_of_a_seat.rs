//! Lists the notes of all boards of a seat for each of its boards.

use super::*;

#[derive(Default)]
pub(crate) struct MixesBoards;

impl Defect for MixesBoards {
    async fn list(&self, parts: &Parts, board: &Board) -> Result<Vec<Note>, StoreError> {
        let Some(seat) = board.seat() else { return parts.notes().list_one(board).await };
        let mut notes = parts.notes().list_one(&Board::Requests(seat.clone())).await?;
        notes.extend(parts.notes().list_one(&Board::Candidates(seat.clone())).await?);
        Ok(notes)
    }
}
