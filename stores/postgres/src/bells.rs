//! Who is to be told of what has changed.
//!
//! There may be ten thousand watches in a process, so each is one small entry here, whatever it is that may
//! end it: a notification, the end of the connection that those come over, or the end of the session that
//! its seat is held on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::SeatName;
use tokio::sync::Notify;

/// What a bell is rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// The holder has changed, by the write with this nonce, where that is told.
    Holder(Option<u64>),
    Requests,
}

/// How many letters a nonce has.
const NONCE: usize = 16;

impl Bell {
    /// Reads a notification: a letter, the nonce after a `w`, then the seat.
    fn parse(payload: &str) -> Option<(Self, &str)> {
        let (letter, rest) = payload.split_at_checked(1)?;
        match letter {
            "w" => {
                let (nonce, seat) = rest.split_at_checked(NONCE)?;
                Some((Self::Holder(Some(u64::from_str_radix(nonce, 16).ok()?)), seat))
            }
            "h" => Some((Self::Holder(None), rest)),
            "r" => Some((Self::Requests, rest)),
            _ => None,
        }
    }
}

/// What is told of a seat that was removed.
pub(crate) fn removed(seat: &SeatName) -> String {
    format!("h{}", seat.as_str())
}

/// Those who watch in this process, by their seats.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    watchers: Mutex<BTreeMap<(SeatName, u64), Arc<Watcher>>>,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    told: Notify,
    /// Whether requests are news.
    requests: bool,
    /// The write that it has seen: that one is not news.
    seen: Option<u64>,
    /// The session whose end is news; no session has the number 0.
    session: AtomicI64,
}

/// A watch. Told of all that happens from its beginning, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    bells: &'a Bells,
    key: (SeatName, u64),
    watcher: Arc<Watcher>,
}

impl Bells {
    /// Watches a seat, last seen as this write left it.
    pub(crate) fn watch(&self, seat: &SeatName, seen: Option<u64>, requests: bool) -> Watch<'_> {
        let key = (seat.clone(), self.numbers.fetch_add(1, Ordering::Relaxed));
        let watcher = Arc::new(Watcher { told: Notify::new(), requests, seen, session: AtomicI64::new(0) });
        self.lock().insert(key.clone(), watcher.clone());
        Watch { bells: self, key, watcher }
    }

    /// A notification has come in.
    pub(crate) fn ring(&self, payload: &str) {
        let Some((bell, seat)) = Bell::parse(payload) else { return };
        let Ok(seat) = SeatName::new(seat) else { return };
        for (_, watcher) in self.lock().range((seat.clone(), 0)..=(seat, u64::MAX)) {
            let is_news = match bell {
                Bell::Holder(nonce) => nonce.is_none() || nonce != watcher.seen,
                Bell::Requests => watcher.requests,
            };
            if is_news {
                watcher.told.notify_one();
            }
        }
    }

    /// Nobody is told of anything any more by the connection that was listened to.
    pub(crate) fn ring_all(&self) {
        self.lock().values().for_each(|watcher| watcher.told.notify_one());
    }

    /// A session is over.
    pub(crate) fn ring_session(&self, session: i64) {
        let watchers = self.lock();
        watchers.values().filter(|watcher| watcher.minds(session)).for_each(|watcher| watcher.told.notify_one());
    }

    /// Whether anybody minds the end of a session.
    pub(crate) fn mind(&self, session: i64) -> bool {
        self.mind_any(|minded| minded == session)
    }

    /// Whether anybody minds the end of a session that this is true of.
    pub(crate) fn mind_any(&self, is_one: impl Fn(i64) -> bool) -> bool {
        let session =
            |watcher: &Arc<Watcher>| Some(watcher.session.load(Ordering::Relaxed)).filter(|number| *number != 0);
        self.lock().values().filter_map(session).any(is_one)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(SeatName, u64), Arc<Watcher>>> {
        self.watchers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Watcher {
    fn minds(&self, session: i64) -> bool {
        self.session.load(Ordering::Relaxed) == session
    }
}

impl Watch<'_> {
    /// From now on, the end of this session is news, too.
    pub(crate) fn mind(&self, session: i64) {
        // Whoever rings has it, too.
        let _ringing = self.bells.lock();
        self.watcher.session.store(session, Ordering::Relaxed);
    }

    /// Resolves once there is news.
    pub(crate) async fn told(&self) {
        self.watcher.told.notified().await;
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.bells.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told(watch: &Watch<'_>) -> bool {
        use futures_util::FutureExt;
        watch.told().now_or_never().is_some()
    }

    #[test]
    fn a_watch_is_told_of_its_own_seat_and_of_what_it_has_not_seen() {
        let bells = Bells::default();
        let [one, other] = ["a", "ab"].map(|name| SeatName::new(name).unwrap());
        let leads = bells.watch(&one, Some(0xab), true);
        let follows = bells.watch(&one, Some(7), false);
        let elsewhere = bells.watch(&other, None, true);
        bells.ring("w00000000000000aba");
        assert!(!is_told(&leads) && is_told(&follows) && !is_told(&elsewhere));
        bells.ring("ra");
        assert!(is_told(&leads) && !is_told(&follows) && !is_told(&elsewhere));
        bells.ring(&removed(&other));
        assert!(!is_told(&leads) && !is_told(&follows) && is_told(&elsewhere));
        for nonsense in ["", "é", "w1", "h", "r", "x", "w00000000000000éa"] {
            bells.ring(nonsense);
        }
        assert!(!is_told(&leads) && !is_told(&follows) && !is_told(&elsewhere));
        bells.ring_all();
        assert!(is_told(&leads) && is_told(&follows) && is_told(&elsewhere));
    }

    #[test]
    fn the_end_of_a_session_is_told_to_those_who_mind_it() {
        let bells = Bells::default();
        let seat = SeatName::new("a").unwrap();
        let (one, other) = (bells.watch(&seat, None, false), bells.watch(&seat, None, false));
        one.mind(5);
        assert!(bells.mind(5) && !bells.mind(6));
        bells.ring_session(5);
        assert!(is_told(&one) && !is_told(&other));
        drop(one);
        assert!(!bells.mind(5));
    }
}
