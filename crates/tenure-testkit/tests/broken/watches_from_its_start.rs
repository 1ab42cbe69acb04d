//! Watches from the moment when the watch begins, whatever its caller has seen.

use super::*;

#[derive(Default)]
pub(crate) struct WatchesFromItsStart;

impl Defect for WatchesFromItsStart {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        let now = SeatStore::read(&parts.store, seat).await.ok().and_then(|reading| reading.seat);
        SeatStore::changed(&parts.store, seat, &Seen { seat: now, requests: seen.requests }).await
    }
}
