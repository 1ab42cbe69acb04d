//! A defective store, for calls about many seats.

use tenure_core::{
    Answers, Call, Clock, DynNotes, Interest, News, Promises, Reading, SeatName, Store, StoreError, Swap, Write,
};

use super::{Defect, Defective};

/// A defective store whose calls about many seats have the defect as well.
pub(super) struct DefectiveCalls<B>(pub(super) Defective<B>);

impl<B: Defect> Store for DefectiveCalls<B> {
    fn promises(&self) -> Promises {
        Store::promises(&self.0)
    }

    fn attach(&self, clock: &Clock, news: &News) {
        Store::attach(&self.0, clock, news);
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let to = to.clone();
        Store::read(&self.0, call, seats, &Answers::new(move |place, answer| to.set(B::seat_place(place), answer)))
            .await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let to = to.clone();
        Store::write(&self.0, call, writes, &Answers::new(move |place, answer| to.set(B::seat_place(place), answer)))
            .await
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        match self.0.defect.watch(&self.0.parts, interest, news) {
            Some(defective) => defective.await,
            None => Store::watch(&self.0, interest, news).await,
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Store::notes(&self.0)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        Store::forget(&self.0, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        Store::list_seats(&self.0).await
    }
}
