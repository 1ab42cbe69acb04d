//! Writes every seat on the session for the lease of the call, although another session holds the seat.

use super::*;

#[derive(Default)]
pub(crate) struct SessionOfTheCall;

impl Defect for SessionOfTheCall {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let held = SeatStore::read(&parts.store, seat).await?.seat.filter(|seat| seat.record.holder.is_some());
        if held.is_some_and(|held| held.record.lease != next.lease) {
            return Ok(Swap::Lost);
        }
        SeatStore::swap(&parts.store, seat, expected, next).await
    }
}
