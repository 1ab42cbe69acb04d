//! Refuses all bids for a while after a release, like a lock delay.

use super::*;

#[derive(Default)]
pub(crate) struct DelaysAfterARelease;

impl Defect for DelaysAfterARelease {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let seen = SeatStore::read(&parts.store, seat).await?.seat;
        let delayed = seen.is_some_and(|seat| {
            let age = match seat.life {
                tenure_core::Life::Clock { now, renewed } => now.checked_since(renewed).unwrap_or_default(),
                _ => Duration::MAX,
            };
            seat.record.is_vacant() && age < Duration::from_millis(500)
        });
        if delayed { Ok(Swap::Lost) } else { SeatStore::swap(&parts.store, seat, expected, next).await }
    }
}
