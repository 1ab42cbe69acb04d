//! Forgets a seat and everything about it, also the number that its tokens must stay above.

use super::*;

#[derive(Default)]
pub(crate) struct ForgetsTheFloorToo;

impl Bend for ForgetsTheFloorToo {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        Ok(Reading::of(SeatStore::read(&parts.store, seat).await?.seat))
    }
}
