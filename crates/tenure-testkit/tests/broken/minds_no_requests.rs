//! Wakes nobody on a request.

use super::*;

#[derive(Default)]
pub(crate) struct MindsNoRequests;

impl Bend for MindsNoRequests {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        SeatStore::changed(&parts.store, seat, &Seen { requests: false, ..seen.clone() }).await
    }
}
