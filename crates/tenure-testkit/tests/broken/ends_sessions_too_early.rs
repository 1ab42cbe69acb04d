//! Reports a session as over before its time has passed.

use super::*;
use std::sync::OnceLock;

#[derive(Default)]
pub(crate) struct EndsSessionsTooEarly(OnceLock<tokio::time::Instant>);

impl Defect for EndsSessionsTooEarly {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let first = *self.0.get_or_init(tokio::time::Instant::now);
        let mut reading = SeatStore::read(&parts.store, seat).await?;
        if let Some(seat) = &mut reading.seat
            && first.elapsed() > seat.record.lease / 2
        {
            seat.life = tenure_core::Life::Over;
        }
        Ok(reading)
    }
}
