//! Deletes the record when a seat is released, and with it the last token.

use super::*;

#[derive(Default)]
pub(crate) struct DeletesOnRelease;

impl Defect for DeletesOnRelease {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        Ok(Reading::of(SeatStore::read(&parts.store, seat).await?.seat))
    }

    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let swap = parts.swap_below_the_floor(seat, expected, next).await?;
        if next.is_vacant() && swap != Swap::Lost {
            parts.memory.delete(seat.as_str());
        }
        Ok(swap)
    }
}
