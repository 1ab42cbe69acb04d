//! Says of every note that it was there.

use super::*;

#[derive(Default)]
pub(crate) struct GreetsNobodyAnew;

impl Bend for GreetsNobodyAnew {
    async fn write_note(&self, parts: &Parts, note: &NoteWrite) -> Result<Was, StoreError> {
        write_one(parts.notes(), note.clone()).await?;
        Ok(Was::There)
    }
}
