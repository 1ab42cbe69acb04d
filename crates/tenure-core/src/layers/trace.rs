//! Logs all calls to a store with `tracing`, at the level DEBUG.

use tracing::{Level, debug};

use super::{CallResult, Layer, ObserveCalls};
use crate::log;

/// A store whose calls are logged at the level DEBUG, with the seat, the outcome and the time that they took. Calls
/// that are cancelled before their answer are logged as well.
///
/// The engine logs changes of state at the level INFO, with or without this layer.
pub type Traced<S> = Layer<S, Tracer>;

/// The part of [`Traced`] that logs calls.
#[derive(Clone, Copy, Debug)]
pub struct Tracer(());

impl<S> Traced<S> {
    /// Wraps a store, whose calls are then logged at the level DEBUG.
    pub const fn new(store: S) -> Self {
        Self { store, observer: Tracer(()) }
    }
}

impl ObserveCalls for Tracer {
    fn observe(&self, CallResult { call, seat, outcome, took, error }: CallResult<'_>) {
        let (seat, error) = (seat.clone(), error.cloned());
        log::emit(Level::DEBUG, move || {
            debug!(call, %seat, outcome, ?took, error = error.as_ref().map(display), "the store was called");
        });
    }
}
