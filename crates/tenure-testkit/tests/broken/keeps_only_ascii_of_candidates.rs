//! Drops all characters outside of ASCII from the notes of candidates.

use super::*;

#[derive(Default)]
pub(crate) struct KeepsOnlyAscii;

impl Defect for KeepsOnlyAscii {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let mut note = note.clone();
        if let (Board::Candidates(_), Some(value)) = (&note.board, &mut note.value) {
            value.retain(|letter| letter.is_ascii());
        }
        write_one(parts.notes(), note).await
    }
}
