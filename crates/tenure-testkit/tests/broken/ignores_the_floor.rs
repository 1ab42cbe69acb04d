//! Keeps the floor of a removed seat, but creates the seat whatever the token of the bid.

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresTheFloor;

impl Defect for IgnoresTheFloor {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let swap = SeatStore::swap(&parts.store, seat, expected, next).await?;
        let is_absent = SeatStore::read(&parts.store, seat).await?.seat.is_none();
        if expected.is_some() || !is_absent {
            return Ok(swap);
        }
        // Only the floor was against the bid. A write on a version does not compare the token with it.
        parts.memory.expire(seat.as_str());
        let created = SeatStore::read(&parts.store, seat).await?.seat.map(|seat| seat.version);
        SeatStore::swap(&parts.store, seat, created.as_ref(), next).await
    }
}
