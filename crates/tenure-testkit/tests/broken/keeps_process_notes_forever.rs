//! Ignores the lifetime of the notes that announce processes.

use super::*;

#[derive(Default)]
pub(crate) struct KeepsProcessNotesForever;

impl Defect for KeepsProcessNotesForever {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let mut note = note.clone();
        if note.board == Board::Processes {
            note.lifetime = Duration::from_secs(1 << 30);
        }
        write_one(parts.notes(), note).await
    }
}
