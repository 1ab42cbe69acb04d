//! Lists only one note of a board.

use super::*;

#[derive(Default)]
pub(crate) struct LosesNotes;

impl Defect for LosesNotes {
    async fn list(&self, parts: &Parts, board: &Board) -> Result<Vec<Note>, StoreError> {
        Ok(parts.notes().list_one(board).await?.pop().into_iter().collect())
    }
}
