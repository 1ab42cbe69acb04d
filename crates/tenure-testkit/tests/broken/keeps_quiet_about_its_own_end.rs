//! Asks the holder to look, and does not say that its session is over.

use super::*;

#[derive(Default)]
pub(crate) struct KeepsQuiet;

impl Bend for KeepsQuiet {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        SeatStore::changed(&parts.store, seat, seen).await;
        Change::Look
    }
}
