//! Applies a write whose call was dropped only after the next read, like a server that processes calls in any order.

use super::*;
use std::sync::Mutex;

#[derive(Default)]
pub(crate) struct AppliesLate(Mutex<Option<(Option<Version>, Record)>>);

impl Defect for AppliesLate {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let reading = SeatStore::read(&parts.store, seat).await;
        let abandoned = self.0.lock().unwrap().take();
        if let Some((expected, next)) = abandoned {
            SeatStore::swap(&parts.store, seat, expected.as_ref(), &next).await?;
        }
        reading
    }

    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        *self.0.lock().unwrap() = Some((expected.cloned(), next.clone()));
        tokio::task::yield_now().await;
        self.0.lock().unwrap().take();
        SeatStore::swap(&parts.store, seat, expected, next).await
    }
}
