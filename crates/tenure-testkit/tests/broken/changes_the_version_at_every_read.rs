//! Changes the version of a seat at every read, so that it never seems to expire.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct NewVersions(AtomicU64);

impl Defect for NewVersions {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let mut reading = SeatStore::read(&parts.store, seat).await?;
        if let Some(seat) = &mut reading.seat {
            let touched = self.0.fetch_add(1, Ordering::Relaxed);
            seat.version = Version::new(format!("{}-{touched}", seat.version.as_str()));
        }
        Ok(reading)
    }
}
