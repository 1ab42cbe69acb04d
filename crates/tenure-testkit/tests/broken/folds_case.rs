//! Treats names that differ only in case as equal, like some collations.

use super::*;

#[derive(Default)]
pub(crate) struct FoldsCase;

fn folded(seat: &SeatName) -> SeatName {
    SeatName::new(seat.as_str().to_lowercase()).unwrap()
}

impl Defect for FoldsCase {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        SeatStore::read(&parts.store, &folded(seat)).await
    }

    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, &folded(seat), expected, next).await
    }

    async fn renew(&self, parts: &Parts, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        SeatStore::renew(&parts.store, &folded(seat), held, record).await
    }
}
