//! Keeps waking a watch because of a dead holder that the caller has already seen.

use tenure_core::Life;

use super::*;

#[derive(Default)]
pub(crate) struct WakesForDeadHolder;

impl Defect for WakesForDeadHolder {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        if seen.seat.as_ref().is_some_and(|seat| seat.life == Life::Over) {
            return Change::Look;
        }
        SeatStore::changed(&parts.store, seat, seen).await
    }
}
