//! Who is to be told of what has changed.
//!
//! There may be ten thousand watches in a process, so each is one small entry here, whatever it is that may
//! end it: a change, the end of a session, or the end of the connection that all this is heard over.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::SeatName;
use tokio::sync::{Notify, watch};

use crate::keys::{Keys, Subject};
use crate::wire::Event;

/// Whether a session is over. Once it is, it stays so: its key is never made again.
pub(crate) type Life = Arc<AtomicBool>;

/// Those who watch in this process, by their seats, and its own sessions.
#[derive(Debug)]
pub(crate) struct Bells {
    keys: Keys,
    watchers: Mutex<BTreeMap<(SeatName, u64), Arc<Watcher>>>,
    lives: Mutex<HashMap<i64, Life>>,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    told: Notify,
    /// Whether requests are news.
    requests: bool,
    /// The revision of the last change that was heard of; beyond all of them once nothing is heard any more.
    last: AtomicI64,
    /// The connection that is listened to; none has the number 0.
    ear: AtomicU64,
    /// The session whose end is news; none has the number 0.
    session: AtomicI64,
    is_session_over: AtomicBool,
}

/// A watch. Told of all that happens from its beginning, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    bells: &'a Bells,
    key: (SeatName, u64),
    watcher: Arc<Watcher>,
}

/// What a connection is heard with. Once this is dropped, the connection is over, and whoever listened to it is told.
#[derive(Debug)]
pub(crate) struct Ear {
    bells: Arc<Bells>,
    pub(crate) number: u64,
    over: Arc<watch::Sender<bool>>,
}

/// What a watch has looked at that has not looked yet: no change is later than the look that is to come.
pub(crate) const NOTHING_YET: i64 = i64::MAX;

impl Bells {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, watchers: Mutex::default(), lives: Mutex::default(), numbers: AtomicU64::new(1) }
    }

    /// Watches a seat.
    pub(crate) fn watch(&self, seat: &SeatName, requests: bool) -> Watch<'_> {
        let key = (seat.clone(), self.number());
        let watcher = Arc::new(Watcher {
            told: Notify::new(),
            requests,
            last: AtomicI64::new(0),
            ear: AtomicU64::new(0),
            session: AtomicI64::new(0),
            is_session_over: AtomicBool::new(false),
        });
        self.lock().insert(key.clone(), watcher.clone());
        Watch { bells: self, key, watcher }
    }

    /// Set when this session of our own is over.
    pub(crate) fn life(&self, session: i64) -> Life {
        let mut lives = self.lives();
        lives.retain(|_, life| Arc::strong_count(life) > 1);
        lives.entry(session).or_default().clone()
    }

    /// Hears a connection.
    pub(crate) fn ear(self: &Arc<Self>, over: Arc<watch::Sender<bool>>) -> Ear {
        Ear { bells: self.clone(), number: self.number(), over }
    }

    /// Something was heard. Called by the task that listens, so it must not block.
    pub(crate) fn ring(&self, event: &Event) {
        let Some(kv) = &event.kv else { return };
        let Ok(key) = std::str::from_utf8(&kv.key) else { return };
        match self.keys.subject(key) {
            Some(Subject::Seat(seat)) => self.tell(&seat, kv.mod_revision, |_| true),
            Some(Subject::Request(seat)) if !event.is_delete() => {
                self.tell(&seat, kv.mod_revision, |watcher| watcher.requests);
            }
            Some(Subject::Live(session)) if event.is_delete() => self.ring_session(session),
            _ => {}
        }
    }

    /// A session is over.
    pub(crate) fn ring_session(&self, session: i64) {
        // First, as whoever is told looks at it.
        if let Some(life) = self.lives().remove(&session) {
            life.store(true, Ordering::Release);
        }
        for watcher in self.lock().values().filter(|watcher| watcher.session.load(Ordering::Relaxed) == session) {
            watcher.is_session_over.store(true, Ordering::Relaxed);
            watcher.told.notify_one();
        }
    }

    fn tell(&self, seat: &SeatName, revision: i64, minds: impl Fn(&Watcher) -> bool) {
        let watchers = self.lock();
        let of_seat = watchers.range((seat.clone(), 0)..=(seat.clone(), u64::MAX));
        of_seat.map(|(_, watcher)| watcher).filter(|watcher| minds(watcher)).for_each(|watcher| watcher.tell(revision));
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(SeatName, u64), Arc<Watcher>>> {
        self.watchers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<i64, Life>> {
        self.lives.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // First, as whoever is told goes to another one.
        self.over.send_replace(true);
        let watchers = self.bells.lock();
        let listening = watchers.values().filter(|watcher| watcher.ear.load(Ordering::Relaxed) == self.number);
        listening.for_each(|watcher| watcher.tell(i64::MAX));
    }
}

impl Watcher {
    fn tell(&self, revision: i64) {
        self.last.fetch_max(revision, Ordering::Relaxed);
        self.told.notify_one();
    }

    fn is_told(&self, looked_at: i64) -> bool {
        self.is_session_over.load(Ordering::Relaxed) || self.last.load(Ordering::Relaxed) > looked_at
    }
}

impl Watch<'_> {
    /// From now on, the end of this session is news, and no longer that of another.
    pub(crate) fn mind(&self, session: i64) {
        // Whoever rings has it, too: what rings before this was there before a look that is made after it.
        let _ringing = self.bells.lock();
        self.watcher.session.store(session, Ordering::Relaxed);
    }

    pub(crate) fn minds(&self, session: i64) -> bool {
        self.watcher.session.load(Ordering::Relaxed) == session
    }

    /// From now on, the end of this connection is news, if it is not yet over.
    pub(crate) fn listen_to(&self, ear: u64) {
        let _ringing = self.bells.lock();
        self.watcher.ear.store(ear, Ordering::Relaxed);
    }

    /// Resolves once there is news: a change after the revision that was looked at, the end of the session, or that
    /// nothing is heard any more. For a watch that has looked at [`NOTHING_YET`], only the end of the session is.
    pub(crate) async fn told(&self, looked_at: i64) {
        while !self.watcher.is_told(looked_at) {
            self.watcher.told.notified().await;
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.bells.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::wire::KeyValue;

    fn bells() -> Arc<Bells> {
        Arc::new(Bells::new(Keys::new("tenure")))
    }

    fn seat(name: &str) -> SeatName {
        SeatName::new(name).unwrap()
    }

    fn ring(bells: &Bells, kind: i32, key: &str, revision: i64) {
        let kv = KeyValue { key: key.into(), mod_revision: revision, ..KeyValue::default() };
        bells.ring(&Event { kind, kv: Some(kv) });
    }

    fn is_told(watch: &Watch<'_>, looked_at: i64) -> bool {
        watch.told(looked_at).now_or_never().is_some()
    }

    #[test]
    fn who_watches_is_told_however_many_others_have_come_and_gone() {
        let bells = bells();
        let (life, watch) = (bells.life(7), bells.watch(&seat("jobs"), false));
        watch.mind(8);
        for number in 0..1000 {
            drop((bells.watch(&seat("jobs"), true), bells.life(number + 10)));
        }
        ring(&bells, 0, "tenure/seats/jobs", 9);
        ring(&bells, 0, &bells.keys.live(7), 10);
        assert!(is_told(&watch, 8) && !is_told(&watch, 9) && !life.load(Ordering::Acquire));
        ring(&bells, 1, &bells.keys.live(7), 11);
        assert!(life.load(Ordering::Acquire) && !is_told(&watch, 9));
        ring(&bells, 1, &bells.keys.live(8), 12);
        assert!(is_told(&watch, NOTHING_YET));
        drop(watch);
        assert!(bells.lock().is_empty() && bells.lives().len() < 2);
    }

    #[test]
    fn only_what_is_later_than_the_look_and_minded_is_news() {
        let bells = bells();
        let (leads, follows) = (bells.watch(&seat("a/b"), true), bells.watch(&seat("a/b"), false));
        let elsewhere = bells.watch(&seat("a"), true);
        ring(&bells, 0, "tenure/seats/a/b", 5);
        ring(&bells, 0, "tenure/seats/a/b", 4);
        for watch in [&leads, &follows] {
            assert!(is_told(watch, 4) && !is_told(watch, 5) && !is_told(watch, NOTHING_YET));
        }
        let request = bells.keys.board(&seat("a/b"), tenure_core::NoteKind::Request) + "key";
        ring(&bells, 1, &request, 6);
        assert!(!is_told(&leads, 5));
        ring(&bells, 0, &request, 7);
        assert!(is_told(&leads, 6) && !is_told(&follows, 5) && !is_told(&elsewhere, 0));
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_later_news_and_not_by_older() {
        let bells = bells();
        let watch = bells.watch(&seat("jobs"), false);
        let mut told = std::pin::pin!(watch.told(5));
        assert!(futures_util::poll!(&mut told).is_pending());
        ring(&bells, 0, "tenure/seats/jobs", 5);
        assert!(futures_util::poll!(&mut told).is_pending());
        ring(&bells, 1, "tenure/seats/jobs", 6);
        told.await;
    }

    #[test]
    fn the_end_of_a_connection_is_told_to_those_who_listen_to_it() {
        let bells = bells();
        let overs = [1, 2].map(|_| Arc::new(watch::Sender::new(false)));
        let [old, new] = overs.clone().map(|over| bells.ear(over));
        let [before, after, neither] = [1, 2, 3].map(|_| bells.watch(&seat("jobs"), false));
        before.listen_to(old.number);
        after.listen_to(new.number);
        drop(old);
        assert_eq!(overs.map(|over| *over.borrow()), [true, false]);
        assert!(is_told(&before, NOTHING_YET - 1) && !is_told(&before, NOTHING_YET));
        assert!(!is_told(&after, 0) && !is_told(&neither, 0));
        drop(new);
        assert!(is_told(&after, 0) && !is_told(&neither, 0));
    }
}
