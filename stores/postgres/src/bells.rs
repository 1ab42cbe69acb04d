//! Who is to be told of what has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::SeatName;
use tokio::sync::Notify;

/// What a bell is rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bell {
    Holder,
    Requests,
}

impl Bell {
    /// What a notification says: the bell, then the seat.
    pub(crate) fn payload(self, seat: &SeatName) -> String {
        let letter = match self {
            Self::Holder => 'h',
            Self::Requests => 'r',
        };
        format!("{letter}{}", seat.as_str())
    }
}

/// Those who listen in this process, by what they listen for.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_payload: HashMap<String, Arc<Notify>>,
    /// How many there may be before those are cleared away that nobody listens to.
    most: usize,
}

impl Bells {
    /// Told whenever this bell is rung from now on.
    pub(crate) fn listen(&self, seat: &SeatName, bell: Bell) -> Arc<Notify> {
        let mut listeners = self.lock();
        if listeners.by_payload.len() > listeners.most {
            listeners.by_payload.retain(|_, told| Arc::strong_count(told) > 1);
            listeners.most = 2 * listeners.by_payload.len() + 16;
        }
        listeners.by_payload.entry(bell.payload(seat)).or_default().clone()
    }

    /// A notification has come in.
    pub(crate) fn ring(&self, payload: &str) {
        if let Some(told) = self.lock().by_payload.get(payload) {
            told.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
