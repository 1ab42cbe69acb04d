//! Has one place for the answer to whoever asks, so that two who ask at once may get each other's.

use super::*;
use std::sync::Mutex;

#[derive(Default)]
pub(crate) struct WrongCaller(Mutex<Option<Reading>>);

impl Bend for WrongCaller {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let reading = SeatStore::read(&parts.store, seat).await?;
        *self.0.lock().unwrap() = Some(reading.clone());
        tokio::task::yield_now().await;
        Ok(self.0.lock().unwrap().clone().unwrap_or(reading))
    }
}
