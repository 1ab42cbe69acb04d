//! Who is to be told of what has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

/// Those who listen in this process, by the folder of their seat.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_folder: HashMap<String, Arc<Notify>>,
    /// How many there may be before those are cleared away that nobody listens to.
    most: usize,
}

impl Bells {
    /// Told whenever something in this folder changes from now on.
    pub(crate) fn listen(&self, folder: &str) -> Arc<Notify> {
        let mut listeners = self.lock();
        if listeners.by_folder.len() > listeners.most {
            listeners.by_folder.retain(|_, told| Arc::strong_count(told) > 1);
            listeners.most = 2 * listeners.by_folder.len() + 16;
        }
        listeners.by_folder.entry(folder.to_owned()).or_default().clone()
    }

    /// Something in this folder has changed.
    pub(crate) fn ring(&self, folder: &str) {
        if let Some(told) = self.lock().by_folder.get(folder) {
            told.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
