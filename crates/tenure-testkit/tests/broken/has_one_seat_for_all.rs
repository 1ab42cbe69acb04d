//! Keeps all seats in one record.

use super::*;

#[derive(Default)]
pub(crate) struct OneSeatForAll;

fn the_one() -> SeatName {
    SeatName::new("the one").unwrap()
}

impl Defect for OneSeatForAll {
    async fn read(&self, parts: &Parts, _: &SeatName) -> Result<Reading, StoreError> {
        SeatStore::read(&parts.store, &the_one()).await
    }

    async fn swap(
        &self,
        parts: &Parts,
        _: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, &the_one(), expected, next).await
    }

    async fn renew(&self, parts: &Parts, _: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        SeatStore::renew(&parts.store, &the_one(), held, record).await
    }
}
