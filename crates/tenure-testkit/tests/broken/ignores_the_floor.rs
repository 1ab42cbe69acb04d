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
        parts.swap_below_the_floor(seat, expected, next).await
    }
}
