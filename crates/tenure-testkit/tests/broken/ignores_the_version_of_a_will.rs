//! Frees the seat for a last will whatever its version, and so takes it from the next leader.

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresTheVersionOfAWill;

impl Defect for IgnoresTheVersionOfAWill {
    async fn free(&self, parts: &Parts, seat: &SeatName, _: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        match SeatStore::read(&parts.store, seat).await?.seat {
            Some(now) => SeatStore::free(&parts.store, seat, &now.version, vacant).await,
            None => Ok(Swap::Lost),
        }
    }
}
