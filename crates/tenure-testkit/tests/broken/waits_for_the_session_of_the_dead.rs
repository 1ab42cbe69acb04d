//! Treats a last will like any other write, so that it is lost until the session of the dead process has ended.

use super::*;

#[derive(Default)]
pub(crate) struct WaitsForTheSession;

impl Defect for WaitsForTheSession {
    async fn free(&self, parts: &Parts, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, seat, Some(held), vacant).await
    }
}
