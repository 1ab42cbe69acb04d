//! Who waits in this process, and for what: told by bells that are rung, and by the end of other processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tenure_core::SeatName;
use tokio::sync::Notify;

use crate::bells::{Bell, Name};
use crate::liveness::Death;

/// Those who watch in this process, by their seats.
#[derive(Default)]
pub(crate) struct Watchers {
    all: Mutex<BTreeMap<(u64, u64), Arc<Watcher>>>,
    numbers: AtomicU64,
}

struct Watcher {
    told: Notify,
    /// Whether requests are news.
    requests: bool,
    /// The end that is news.
    minds: OnceLock<Arc<Death>>,
}

/// A watch. Told of all that happens from its beginning, until it is dropped.
pub(crate) struct Watch<'a> {
    watchers: &'a Watchers,
    key: (u64, u64),
    watcher: Arc<Watcher>,
}

impl Watchers {
    pub(crate) fn watch(&self, seat: &SeatName, requests: bool) -> Watch<'_> {
        let key = (Name::of(seat, Bell::Holder).seat, self.numbers.fetch_add(1, Ordering::Relaxed));
        let watcher = Arc::new(Watcher { told: Notify::new(), requests, minds: OnceLock::new() });
        self.lock().insert(key, watcher.clone());
        Watch { watchers: self, key, watcher }
    }

    /// A bell was rung.
    pub(crate) fn tell(&self, name: Name) {
        for watcher in self.lock().range((name.seat, 0)..=(name.seat, u64::MAX)).map(|(_, watcher)| watcher) {
            if name.bell == Bell::Holder || watcher.requests {
                watcher.told.notify_one();
            }
        }
    }

    /// Some bells may have been missed.
    pub(crate) fn tell_all(&self) {
        self.lock().values().for_each(|watcher| watcher.told.notify_one());
    }

    /// A process has ended.
    pub(crate) fn tell_of(&self, death: &Arc<Death>) {
        let minds = |watcher: &&Arc<Watcher>| watcher.minds.get().is_some_and(|minded| Arc::ptr_eq(minded, death));
        self.lock().values().filter(minds).for_each(|watcher| watcher.told.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), Arc<Watcher>>> {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Watch<'_> {
    /// From now on, the end of this process is news, too. If that was told before, it has happened by now.
    pub(crate) fn mind(&self, death: Arc<Death>) {
        let _telling = self.watchers.lock();
        let _ = self.watcher.minds.set(death);
    }

    /// Resolves once there is news.
    pub(crate) async fn told(&self) {
        self.watcher.told.notified().await;
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.watchers.lock().remove(&self.key);
    }
}
