//! Lists no expired notes, but keeps them, and reports that they existed.

use tenure_core::Clock;

use super::*;

#[derive(Default)]
pub(crate) struct SaysExpiredNotesExist;

impl Defect for SaysExpiredNotesExist {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let until = Clock::system().now() + note.lifetime;
        let value = note.value.as_ref().map(|value| format!("{} {value}", until.as_nanos()));
        write_one(parts.notes(), NoteWrite { value, lifetime: Duration::from_secs(1 << 30), ..note.clone() }).await
    }

    async fn list(&self, parts: &Parts, board: &Board) -> Result<Vec<Note>, StoreError> {
        let (notes, now) = (parts.notes().list_one(board).await?, Clock::system().now().as_nanos());
        let kept = |Note { key, value }| {
            let (until, value): (&str, &str) = value.split_once(' ')?;
            (until.parse::<u64>().ok()? > now).then(|| Note { key, value: value.to_owned() })
        };
        Ok(notes.into_iter().filter_map(kept).collect())
    }
}
