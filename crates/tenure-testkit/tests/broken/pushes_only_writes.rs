//! Pushes writes of a seat, but not the end of its holder's session.

use super::*;

#[derive(Default)]
pub(crate) struct PushesOnlyWrites;

impl Defect for PushesOnlyWrites {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        loop {
            let now = SeatStore::read(&parts.store, seat).await.ok().and_then(|reading| reading.seat);
            if seen.differs_from(now.as_ref()) {
                return Change::Look;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
