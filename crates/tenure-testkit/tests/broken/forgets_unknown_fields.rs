//! Writes only the fields that it knows.

use super::*;

#[derive(Default)]
pub(crate) struct ForgetsUnknownFields;

impl Defect for ForgetsUnknownFields {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let next = Record { unknown: Arc::default(), ..next.clone() };
        SeatStore::swap(&parts.store, seat, expected, &next).await
    }
}
