//! Opens a new session by itself when the old one is over, and goes on as if nothing had happened.

use super::*;

#[derive(Default)]
pub(crate) struct RenewsOnADeadSession;

impl Bend for RenewsOnADeadSession {
    async fn renew(&self, parts: &Parts, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, seat, Some(held), record).await
    }
}
