//! Takes a lock for every call, and frees it only if the call runs to its end.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct StaysLocked(AtomicBool);

impl Defect for StaysLocked {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        while self.0.swap(true, Ordering::AcqRel) {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        let reading = SeatStore::read(&parts.store, seat).await;
        self.0.store(false, Ordering::Release);
        reading
    }
}
