//! Promises push, but never wakes a watch.

use super::*;

#[derive(Default)]
pub(crate) struct NeverWakes;

impl Defect for NeverWakes {
    async fn changed(&self, _: &Parts, _: &SeatName, _: &Seen) -> Change {
        std::future::pending().await
    }
}
