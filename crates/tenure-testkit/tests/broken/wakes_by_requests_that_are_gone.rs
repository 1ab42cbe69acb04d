//! Wakes whoever minds requests by one that was taken off the board, again and again.

use std::collections::HashSet;
use std::sync::Mutex;

use super::*;

#[derive(Default)]
pub(crate) struct WakesByRequestsThatAreGone {
    woken: Mutex<HashSet<SeatName>>,
}

impl Bend for WakesByRequestsThatAreGone {
    async fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> Change {
        if seen.requests && self.woken.lock().unwrap().contains(seat) {
            return Change::Look;
        }
        let change = SeatStore::changed(&parts.store, seat, seen).await;
        self.woken.lock().unwrap().insert(seat.clone());
        change
    }
}
