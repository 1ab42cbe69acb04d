//! Keeps every seat of a process alive while the process renews any of them.

use std::sync::Mutex;

use tenure_core::Life;
use tokio::time::Instant;

use super::*;

#[derive(Default)]
pub(crate) struct OneSession;

/// When a process has last renewed a seat. Shared, because the process that reads is another one.
static RENEWED: Mutex<Option<Instant>> = Mutex::new(None);

impl Defect for OneSession {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let mut reading = SeatStore::read(&parts.store, seat).await?;
        if let Some(seat) = &mut reading.seat
            && RENEWED.lock().unwrap().is_some_and(|at| at.elapsed() < seat.record.lease)
        {
            seat.life = Life::Held;
        }
        Ok(reading)
    }

    async fn renew(&self, parts: &Parts, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        *RENEWED.lock().unwrap() = Some(Instant::now());
        SeatStore::renew(&parts.store, seat, held, record).await
    }
}
