//! Counts and times all calls to a store. `telemetry.rs` has the metrics of elections.

use metrics::{counter, histogram};

use super::{CallResult, Layer, ObserveCalls};
use crate::telemetry::{STORE_CALL, STORE_CALLS};
use crate::{Store, log};

/// A store whose calls are counted and timed, for each seat in them.
///
/// What happens in elections is counted by the engine itself, with or without this.
pub type Measured<S> = Layer<S, Meter>;

/// The part of [`Measured`] that counts and times calls.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    store: &'static str,
}

impl<S: Store> Measured<S> {
    /// Wraps a store, whose calls are then counted and timed.
    pub fn new(store: S) -> Self {
        let observer = Meter { store: store.promises().store };
        Self { store, observer }
    }
}

impl ObserveCalls for Meter {
    fn observe(&self, CallResult { call, outcome, took, .. }: CallResult<'_>) {
        let store = self.store;
        log::update(move || {
            counter!(STORE_CALLS, "store" => store, "call" => call, "outcome" => outcome).increment(1);
            histogram!(STORE_CALL, "store" => store, "call" => call).record(took);
        });
    }
}
