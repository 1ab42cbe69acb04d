//! Gives the list of each board as the answer for the next board of the same call.

use super::*;

#[derive(Default)]
pub(crate) struct AnswersForTheNextBoard;

impl Defect for AnswersForTheNextBoard {
    fn promises(&self, parts: &Parts) -> Promises {
        let most = tenure_core::BatchLimits { seats: 10, calls: 1 };
        Promises { reads: most, writes: most, ..SeatStore::promises(&parts.store) }
    }

    fn place(&self, place: usize) -> usize {
        (place + 1) % 10
    }
}
