//! Gives the answer for each seat to the next seat of the same call.

use super::*;

#[derive(Default)]
pub(crate) struct AnswersForTheNextSeat;

impl Defect for AnswersForTheNextSeat {
    fn promises(&self, parts: &Parts) -> Promises {
        let most = tenure_core::BatchLimits { seats: 3, calls: 1 };
        Promises { reads: most, writes: most, ..SeatStore::promises(&parts.store) }
    }

    fn seat_place(place: usize) -> usize {
        (place + 1) % 3
    }
}
