//! Keeps no floor for a seat that was deleted.

use super::*;

#[derive(Default)]
pub(crate) struct HasNoFloor;

impl Defect for HasNoFloor {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        Ok(Reading::of(SeatStore::read(&parts.store, seat).await?.seat))
    }
}
