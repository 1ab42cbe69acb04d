//! Resolves the holder's watch with `Look` when its session has ended, not with `SessionOver`.

use super::*;

#[derive(Default)]
pub(crate) struct HidesItsEnd;

impl Defect for HidesItsEnd {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        SeatStore::changed(&parts.store, seat, seen).await;
        Change::Look
    }
}
