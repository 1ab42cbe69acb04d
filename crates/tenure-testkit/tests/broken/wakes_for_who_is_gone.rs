//! Tells again and again that a holder is gone.

use tenure_core::Life;

use super::*;

#[derive(Default)]
pub(crate) struct WakesForWhoIsGone;

impl Bend for WakesForWhoIsGone {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        if seen.seat.as_ref().is_some_and(|seat| seat.life == Life::Over) {
            return Change::Look;
        }
        SeatStore::changed(&parts.store, seat, seen).await
    }
}
