//! Keeps the requests of all seats on one board.

use super::*;

#[derive(Default)]
pub(crate) struct OneBoardForAll;

fn the_one(board: &Board) -> Board {
    match board {
        Board::Requests(_) => Board::Requests(SeatName::new("the one").unwrap()),
        other => other.clone(),
    }
}

impl Defect for OneBoardForAll {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<NoteState, StoreError> {
        write_one(parts.notes(), NoteWrite { board: the_one(&note.board), ..note.clone() }).await
    }

    async fn list(&self, parts: &Parts, board: &Board) -> Result<Vec<Note>, StoreError> {
        parts.notes().list_one(&the_one(board)).await
    }
}
