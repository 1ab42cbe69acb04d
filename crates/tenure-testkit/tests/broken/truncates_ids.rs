//! Keeps only the first 64 characters of an id, like a column that is too narrow.

use super::*;

#[derive(Default)]
pub(crate) struct TruncatesIds;

impl Defect for TruncatesIds {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let mut next = next.clone();
        if let Some(holder) = &mut next.holder {
            holder.id = holder.id.chars().take(64).collect::<String>().into();
        }
        SeatStore::swap(&parts.store, seat, expected, &next).await
    }
}
