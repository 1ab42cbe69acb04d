//! Misbehaviour of stores. The engine tolerates each kind, and logs it once with the store's name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::{Level, debug, warn};

use crate::log;

/// A mistake of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Misbehaviour {
    /// It answered for a seat twice, or for one that is not in the call.
    AnsweredTooMuch,
    /// It left a seat of a call without an answer.
    LeftUnanswered,
    /// It panicked.
    Panicked,
    /// It promises to push changes, and does not start to listen.
    NeverListens,
    /// It reported changes faster than the engine can process them.
    Floods,
    /// It reported changes of seats that no election of this process is about. This is allowed for a store that watches
    /// all seats of a server.
    TellsOfOthers,
}

/// Logs the mistakes of a store, each kind once.
#[derive(Clone)]
pub(crate) struct Misbehaviours {
    store: &'static str,
    logged: Arc<AtomicU32>,
}

impl Misbehaviours {
    pub(crate) fn new(store: &'static str) -> Self {
        Self { store, logged: Arc::default() }
    }

    pub(crate) fn log(&self, what: Misbehaviour) {
        let bit = 1 << what as u32;
        if self.logged.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        let store = self.store;
        if matches!(what, Misbehaviour::TellsOfOthers) {
            log::emit(Level::DEBUG, move || debug!(store, "{}", what.message()));
        } else {
            log::emit(Level::WARN, move || warn!(store, "{}", what.message()));
        }
    }
}

impl Misbehaviour {
    fn message(self) -> &'static str {
        match self {
            Self::AnsweredTooMuch => {
                "the store answered twice for one seat, or for a seat that is not in the call: a bug in the store; \
                 the answer is ignored"
            }
            Self::LeftUnanswered => {
                "the store left a seat of a call without an answer: a bug in the store; the outcome counts as unknown"
            }
            Self::Panicked => "the store panicked: a bug in the store; the outcome of the call counts as unknown",
            Self::NeverListens => {
                "the store promises to push changes and does not listen; followers read the seat every third of a lease"
            }
            Self::Floods => {
                "the store reports changes faster than the engine can process them; only the last one of each seat counts"
            }
            Self::TellsOfOthers => {
                "the store reports changes of seats that no election in this process is about; they are ignored"
            }
        }
    }
}
