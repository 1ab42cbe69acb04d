//! Forgets a seat together with the floor of its tokens.

use super::*;

#[derive(Default)]
pub(crate) struct ForgetsTheFloorToo;

impl Defect for ForgetsTheFloorToo {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        Ok(Reading::of(SeatStore::read(&parts.store, seat).await?.seat))
    }
}
