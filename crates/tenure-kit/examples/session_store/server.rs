//! A model of a server with sessions: it keeps texts by key, binds them to sessions that expire, and pushes every change.
//! A real server is behind a network. The store uses only the calls that such a server would have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

/// The server. Its sessions are checked every few milliseconds, until it is dropped.
pub(crate) struct Server {
    state: Mutex<State>,
    changes: broadcast::Sender<Change>,
}

#[derive(Default)]
struct State {
    /// The number of writes and sessions so far. No two writes and no two sessions have the same number.
    revision: u64,
    entries: BTreeMap<String, Entry>,
    sessions: BTreeMap<u64, Session>,
}

struct Session {
    ttl: Duration,
    expires: Instant,
}

/// The text of a key, the write that it is from, and the session that it is bound to.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) revision: u64,
    pub(crate) session: Option<u64>,
    pub(crate) text: String,
}

/// A conditional write. It happens only if the key has this revision (`None`: does not exist), the session of its entry
/// has ended or is `unbind`, and the session that the new entry is bound to is alive.
pub(crate) struct Put {
    pub(crate) key: String,
    pub(crate) revision: Option<u64>,
    pub(crate) unbind: Option<u64>,
    pub(crate) bind: Option<u64>,
    pub(crate) text: String,
}

/// A change that the server pushes to all its clients, in the order of the changes.
#[derive(Clone)]
pub(crate) enum Change {
    Written(String, Entry),
    SessionEnded(u64),
}

impl Server {
    pub(crate) fn start() -> Arc<Self> {
        let server = Arc::new(Self { state: Mutex::default(), changes: broadcast::Sender::new(4096) });
        let expiring = Arc::downgrade(&server);
        std::thread::spawn(move || {
            while let Some(server) = Weak::upgrade(&expiring) {
                server.expire_sessions(Instant::now());
                drop(server);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        server
    }

    /// Opens a session that ends unless it is renewed within its time to live.
    pub(crate) fn open_session(&self, ttl: Duration) -> u64 {
        let mut state = self.state();
        state.revision += 1;
        let id = state.revision;
        state.sessions.insert(id, Session { ttl, expires: Instant::now() + ttl });
        id
    }

    /// Renews a session. Returns the keys that are bound to it, with their revisions; `None` if it has ended.
    pub(crate) fn renew_session(&self, id: u64) -> Option<BTreeMap<String, u64>> {
        let mut state = self.state();
        let session = state.sessions.get_mut(&id)?;
        session.expires = Instant::now() + session.ttl;
        let bound = state.entries.iter().filter(|(_, entry)| entry.session == Some(id));
        Some(bound.map(|(key, entry)| (key.clone(), entry.revision)).collect())
    }

    /// Ends a session, as an operator can.
    #[allow(dead_code, reason = "only the laws use it")]
    pub(crate) fn end_session(&self, id: u64) {
        let mut state = self.state();
        if state.sessions.remove(&id).is_some() {
            let _ = self.changes.send(Change::SessionEnded(id));
        }
    }

    /// Returns the entry of each key, and whether its session is alive.
    pub(crate) fn get(&self, keys: &[String]) -> Vec<Option<(Entry, bool)>> {
        let state = self.state();
        let is_held = |entry: &Entry| entry.session.is_some_and(|id| state.sessions.contains_key(&id));
        keys.iter().map(|key| state.entries.get(key).map(|entry| (entry.clone(), is_held(entry)))).collect()
    }

    /// Writes each key on its own condition. Returns the revision of each write; `None` if its condition did not hold.
    pub(crate) fn put(&self, puts: Vec<Put>) -> Vec<Option<u64>> {
        let mut state = self.state();
        puts.into_iter().map(|put| state.put(put, &self.changes)).collect()
    }

    /// Returns all keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.state().entries.keys().cloned().collect()
    }

    /// Returns a stream of all changes from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn expire_sessions(&self, now: Instant) {
        self.state().sessions.retain(|id, session| {
            let is_alive = now < session.expires;
            if !is_alive {
                let _ = self.changes.send(Change::SessionEnded(*id));
            }
            is_alive
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn put(&mut self, put: Put, changes: &broadcast::Sender<Change>) -> Option<u64> {
        let current = self.entries.get(&put.key);
        let holder = current.and_then(|entry| entry.session).filter(|id| self.sessions.contains_key(id));
        let is_as_expected = current.map(|entry| entry.revision) == put.revision;
        let is_free = holder.is_none() || holder == put.unbind;
        let can_be_bound = put.bind.is_none_or(|id| self.sessions.contains_key(&id));
        if !(is_as_expected && is_free && can_be_bound) {
            return None;
        }
        self.revision += 1;
        let entry = Entry { revision: self.revision, session: put.bind, text: put.text };
        self.entries.insert(put.key.clone(), entry.clone());
        let _ = changes.send(Change::Written(put.key, entry));
        Some(self.revision)
    }
}
