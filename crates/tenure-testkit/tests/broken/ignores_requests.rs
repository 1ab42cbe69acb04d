//! Does not wake a watch when there is a request.

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresRequests;

impl Defect for IgnoresRequests {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        SeatStore::changed(&parts.store, seat, &Seen { requests: false, ..seen.clone() }).await
    }
}
