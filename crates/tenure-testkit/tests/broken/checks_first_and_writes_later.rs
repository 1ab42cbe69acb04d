//! Checks the version, and writes a moment later without a condition.

use super::*;

#[derive(Default)]
pub(crate) struct ChecksFirst;

impl Defect for ChecksFirst {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let seen = SeatStore::read(&parts.store, seat).await?.seat;
        if seen.as_ref().map(|seat| &seat.version) != expected {
            return Ok(Swap::Lost);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        loop {
            let now = SeatStore::read(&parts.store, seat).await?.seat.map(|seat| seat.version);
            let swap = SeatStore::swap(&parts.store, seat, now.as_ref(), next).await?;
            if swap != Swap::Lost {
                return Ok(swap);
            }
        }
    }
}
