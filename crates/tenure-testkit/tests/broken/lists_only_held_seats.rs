//! Leaves out seats that are vacant.

use super::*;

#[derive(Default)]
pub(crate) struct ListsOnlyHeldSeats;

impl Defect for ListsOnlyHeldSeats {
    async fn list_seats(&self, parts: &Parts) -> Result<Vec<SeatName>, StoreError> {
        let mut held = Vec::new();
        for seat in SeatStore::list_seats(&parts.store).await? {
            let reading = SeatStore::read(&parts.store, &seat).await?;
            if reading.seat.is_some_and(|seat| !seat.record.is_vacant()) {
                held.push(seat);
            }
        }
        Ok(held)
    }
}
