//! Renews a seat without checking its holder.

use super::*;

#[derive(Default)]
pub(crate) struct RenewsWithoutChecking;

impl Defect for RenewsWithoutChecking {
    async fn renew(&self, parts: &Parts, seat: &SeatName, _: &Version, record: &Record) -> Result<Swap, StoreError> {
        let now = SeatStore::read(&parts.store, seat).await?.seat.map(|seat| seat.version);
        SeatStore::swap(&parts.store, seat, now.as_ref(), record).await
    }
}
