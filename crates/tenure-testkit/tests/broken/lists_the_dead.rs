//! Lists whoever has announced itself, whether it attends or not.

use super::*;

#[derive(Default)]
pub(crate) struct ListsTheDead;

impl Bend for ListsTheDead {
    async fn attend(&self, parts: &Parts, process: Incarnation, _: Duration) -> Result<Attended, StoreError> {
        Board::attend(&parts.store, process, Duration::from_secs(1 << 30)).await
    }
}
