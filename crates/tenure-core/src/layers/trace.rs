//! Tells every call to a store, with `tracing`, at the level of debug.

use std::future::Future;
use std::time::Instant;

use tracing::{Level, debug};

use super::Outcome;
use crate::{
    Change, Clock, DynBoard, Promises, Reading, Record, SeatName, Seen, Store, StoreError, Swap, Version, log,
};

/// A store that tells every call to it: which seat, how it ended, how long it took. Calls that are
/// given up before they are answered are told, too.
///
/// Changes of state are told by the engine itself, at the level of info, with or without this.
#[derive(Clone, Debug)]
pub struct Traced<S> {
    store: S,
}

impl<S> Traced<S> {
    /// This store, traced.
    pub const fn new(store: S) -> Self {
        Self { store }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Traced<S> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        told("read", seat, self.store.read(seat)).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        told("swap", seat, self.store.swap(seat, expected, next)).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        told("renew", seat, self.store.renew(seat, held, record)).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let change = self.store.changed(seat, seen).await;
        let seat = seat.clone();
        log::emit(Level::DEBUG, move || debug!(%seat, ?change, "news from the store"));
        change
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        self.store.board()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<crate::Lifeline>> {
        self.store.lifeline(seat)
    }
}

async fn told<T: Outcome>(
    call: &'static str,
    seat: &SeatName,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut told = Told { call, seat, began: Instant::now(), outcome: "given up", error: None };
    let answer = answer.await;
    (told.outcome, told.error) = (answer.outcome(), answer.as_ref().err().cloned());
    answer
}

/// Told when dropped, and so also if the call was given up.
struct Told<'a> {
    call: &'static str,
    seat: &'a SeatName,
    began: Instant,
    outcome: &'static str,
    error: Option<StoreError>,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let (call, outcome, took, error) = (self.call, self.outcome, self.began.elapsed(), self.error.take());
        let seat = self.seat.clone();
        log::emit(Level::DEBUG, move || {
            debug!(call, %seat, outcome, ?took, error = error.as_ref().map(display), "store call");
        });
    }
}
