//! Promises a push that never comes.

use super::*;

#[derive(Default)]
pub(crate) struct NeverWakes;

impl Bend for NeverWakes {
    async fn changed(&self, _: &Parts, _: &SeatName, _: &Seen) -> Change {
        std::future::pending().await
    }
}
