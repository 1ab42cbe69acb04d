//! Has one board for all seats.

use super::*;

#[derive(Default)]
pub(crate) struct OneBoardForAll;

fn the_one() -> SeatName {
    SeatName::new("the one").unwrap()
}

impl Bend for OneBoardForAll {
    async fn put(&self, parts: &Parts, _: &SeatName, note: &Note) -> Result<(), StoreError> {
        Board::put(&parts.store, &the_one(), note).await
    }

    async fn list(&self, parts: &Parts, _: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        Board::list(&parts.store, &the_one(), kind).await
    }

    async fn remove(&self, parts: &Parts, _: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        Board::remove(&parts.store, &the_one(), kind, key).await
    }
}
