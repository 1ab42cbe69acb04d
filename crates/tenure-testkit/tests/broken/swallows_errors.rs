//! Reports every error as an absent seat or a lost swap.

use super::*;

#[derive(Default)]
pub(crate) struct SwallowsErrors;

impl Defect for SwallowsErrors {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        Ok(SeatStore::read(&parts.store, seat).await.unwrap_or(Reading::of(None)))
    }

    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        Ok(SeatStore::swap(&parts.store, seat, expected, next).await.unwrap_or(Swap::Lost))
    }
}
