//! Writes a seat whatever its version, like a server that ignores the condition.

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresTheVersion;

impl Defect for IgnoresTheVersion {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        _: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let now = SeatStore::read(&parts.store, seat).await?.seat.map(|seat| seat.version);
        SeatStore::swap(&parts.store, seat, now.as_ref(), next).await
    }
}
