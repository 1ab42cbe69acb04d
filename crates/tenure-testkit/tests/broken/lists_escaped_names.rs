//! Lists the names of its keys, in which some characters are escaped.

use super::*;

#[derive(Default)]
pub(crate) struct ListsEscapedNames;

impl Defect for ListsEscapedNames {
    async fn list_seats(&self, parts: &Parts) -> Result<Vec<SeatName>, StoreError> {
        let seats = SeatStore::list_seats(&parts.store).await?;
        Ok(seats.iter().map(|seat| SeatName::new(seat.as_str().replace('%', "%25")).unwrap()).collect())
    }
}
