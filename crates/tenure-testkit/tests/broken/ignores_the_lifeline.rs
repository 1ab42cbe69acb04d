//! Frees the seat for a last will although a process still has its lifeline open.

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresTheLifeline;

impl Defect for IgnoresTheLifeline {
    async fn free(&self, parts: &Parts, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, seat, Some(held), vacant).await
    }
}
