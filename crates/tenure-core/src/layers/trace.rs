//! Tells every call to a store, with `tracing`, at the level of debug.

use tracing::{Level, debug};

use super::{Layer, Notification, Tell};
use crate::log;

/// A store that tells every call to it: which seat, how it ended, how long it took. Calls that are
/// given up before they are answered are told, too.
///
/// Changes of state are told by the engine itself, at the level of info, with or without this.
pub type Traced<S> = Layer<S, Tracer>;

/// Logs calls.
#[derive(Clone, Copy, Debug)]
pub struct Tracer(());

impl<S> Traced<S> {
    /// This store, traced.
    pub const fn new(store: S) -> Self {
        Self { store, teller: Tracer(()) }
    }
}

impl Tell for Tracer {
    fn tell(&self, Notification { call, seat, outcome, took, error }: Notification<'_>) {
        let (seat, error) = (seat.clone(), error.cloned());
        log::emit(Level::DEBUG, move || {
            debug!(call, %seat, outcome, ?took, error = error.as_ref().map(display), "store call");
        });
    }
}
