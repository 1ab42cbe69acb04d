//! Keeps waking a watch that subscribes to requests, because of a request that was removed.

use std::collections::HashSet;
use std::sync::Mutex;

use super::*;

#[derive(Default)]
pub(crate) struct WakesForRemoved {
    woken: Mutex<HashSet<SeatName>>,
}

impl Defect for WakesForRemoved {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        if seen.requests && self.woken.lock().unwrap().contains(seat) {
            return Change::Look;
        }
        let change = SeatStore::changed(&parts.store, seat, seen).await;
        self.woken.lock().unwrap().insert(seat.clone());
        change
    }
}
