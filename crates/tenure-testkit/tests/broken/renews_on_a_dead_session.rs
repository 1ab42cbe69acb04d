//! Silently opens a new session when the old one has ended, and renews the seat on it.

use super::*;

#[derive(Default)]
pub(crate) struct RenewsOnADeadSession;

impl Defect for RenewsOnADeadSession {
    async fn renew(&self, parts: &Parts, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, seat, Some(held), record).await
    }
}
