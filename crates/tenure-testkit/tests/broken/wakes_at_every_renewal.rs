//! Wakes a watch at every change of the version.

use super::*;

#[derive(Default)]
pub(crate) struct WakesAtEveryRenewal;

impl Defect for WakesAtEveryRenewal {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        let version = seen.seat.as_ref().map(|seat| seat.version.clone());
        loop {
            let now = SeatStore::read(&parts.store, seat).await.ok().and_then(|reading| reading.seat);
            if now.map(|seat| seat.version) != version {
                return Change::Look;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
