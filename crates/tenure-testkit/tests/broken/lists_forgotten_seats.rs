//! Lists every key that it has, also that of a seat of which only the floor is left.

use std::sync::Mutex;

use super::*;

#[derive(Default)]
pub(crate) struct ListsForgottenSeats;

/// Seats that any connection has forgotten.
static FORGOTTEN: Mutex<Vec<SeatName>> = Mutex::new(Vec::new());

impl Defect for ListsForgottenSeats {
    async fn forget(&self, parts: &Parts, seat: &SeatName) -> Result<(), StoreError> {
        FORGOTTEN.lock().unwrap().push(seat.clone());
        SeatStore::forget(&parts.store, seat).await
    }

    async fn list_seats(&self, parts: &Parts) -> Result<Vec<SeatName>, StoreError> {
        let seats = SeatStore::list_seats(&parts.store).await?;
        Ok(seats.into_iter().chain(FORGOTTEN.lock().unwrap().clone()).collect())
    }
}
