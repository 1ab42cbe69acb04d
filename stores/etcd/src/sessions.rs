//! The sessions of a store: one for each length of lease, as etcd is told how long to wait for us.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::{Clock, StoreError};

use crate::bells::Bells;
use crate::keys::Keys;
use crate::line::Line;
use crate::session::Session;

pub(crate) struct Sessions {
    line: Arc<Line>,
    keys: Keys,
    bells: Arc<Bells>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_lease: HashMap<Duration, Arc<tokio::sync::Mutex<Option<Arc<Session>>>>>,
    live: HashMap<i64, Arc<Session>>,
    /// All that we have ever had.
    own: HashSet<i64>,
    ready: HashMap<Duration, Weak<Ready>>,
}

/// Keeps a session alive for those who may bid at any time, for as long as one of them has this.
pub(crate) struct Ready(tokio::task::AbortHandle);

impl Drop for Ready {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sessions {
    pub(crate) fn new(line: Arc<Line>, keys: Keys, bells: Arc<Bells>) -> Self {
        Self { line, keys, bells, state: Mutex::default() }
    }

    /// Whether a session is one of ours, alive or not.
    pub(crate) fn is_own(&self, session: i64) -> bool {
        self.lock().own.contains(&session)
    }

    /// One of our own sessions, if it lives.
    pub(crate) fn alive(&self, session: i64) -> Option<Arc<Session>> {
        self.lock().live.get(&session).filter(|session| !session.is_over()).cloned()
    }

    /// The session for this lease, opened if need be. That goes on when the call is given up.
    pub(crate) async fn session(self: &Arc<Self>, lease: Duration, clock: Clock) -> Result<Arc<Session>, StoreError> {
        if lease.subsec_nanos() != 0 || lease.is_zero() {
            return Err(StoreError::denied("etcd counts leases in whole seconds"));
        }
        let slot = self.lock().by_lease.entry(lease).or_default().clone();
        let sessions = self.clone();
        let task = tokio::spawn(async move {
            let mut slot = slot.lock().await;
            let link = sessions.line.link().await?;
            if let Some(session) = slot.as_ref().filter(|session| session.is_of(&link)) {
                session.wake().await?;
                if !session.is_over() {
                    return Ok(session.clone());
                }
            }
            let session = Session::open(&sessions.line, &sessions.keys, &sessions.bells, lease, clock).await?;
            let session = Arc::new(session);
            *slot = Some(session.clone());
            let mut state = sessions.lock();
            state.live.retain(|_, session| !session.is_over());
            state.live.insert(session.id, session.clone());
            state.own.insert(session.id);
            Ok(session)
        });
        task.await.unwrap_or_else(|error| Err(StoreError::refused("the session was cut off").because(error)))
    }

    /// Has a session ready for a bid on a seat that another holds, so that nothing is to be opened when it is
    /// free. Its lease is a guess: that of the holder.
    pub(crate) fn ready(self: &Arc<Self>, lease: Duration, clock: Clock) -> Arc<Ready> {
        let mut state = self.lock();
        if let Some(ready) = state.ready.get(&lease).and_then(Weak::upgrade) {
            return ready;
        }
        let sessions = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            loop {
                let Some(sessions) = sessions.upgrade() else { return };
                match sessions.session(lease, clock.clone()).await {
                    Ok(session) => drop(session.keep().await),
                    Err(error) => tracing::debug!(%error, "no session is ready for a bid"),
                }
                drop(sessions);
                tokio::time::sleep(lease / 3).await;
            }
        });
        let ready = Arc::new(Ready(task.abort_handle()));
        state.ready.insert(lease, Arc::downgrade(&ready));
        ready
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
