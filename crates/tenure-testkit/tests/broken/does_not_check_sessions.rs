//! Promises sessions, but does not check whether one is alive.

use super::*;
use tenure_core::Life;

#[derive(Default)]
pub(crate) struct DoesNotCheckSessions;

impl Defect for DoesNotCheckSessions {
    fn promises(&self, parts: &Parts) -> Promises {
        Promises { life: LifeKind::Session, ..SeatStore::promises(&parts.store) }
    }

    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let mut reading = SeatStore::read(&parts.store, seat).await?;
        if let Some(seat) = &mut reading.seat
            && let Life::Clock { now, renewed } = seat.life
        {
            let age = now.checked_since(renewed).unwrap_or_default();
            seat.life = if seat.record.is_vacant() || age >= seat.record.lease { Life::Over } else { Life::Held };
        }
        Ok(reading)
    }
}
