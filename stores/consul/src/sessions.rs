//! The sessions of a process: one for each length of lease, whatever the number of seats.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::{Clock, StoreError};
use tokio::task::AbortHandle;

use crate::client::Client;
use crate::options::TakeoverMode;
use crate::session::{Session, Terms};
use crate::tree::Mirror;

/// The sessions of a store.
pub(crate) struct Sessions {
    client: Arc<Client>,
    mirror: Arc<Mirror>,
    takeover: TakeoverMode,
    checks: Vec<String>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    by_lease: HashMap<Duration, Arc<tokio::sync::Mutex<Option<Arc<Session>>>>>,
    live: HashMap<String, Arc<Session>>,
    /// All that we have ever had.
    own: HashSet<String>,
    keepers: HashMap<Duration, (Weak<Wanted>, AbortHandle)>,
}

/// That a session is to be kept ready, for as long as this is kept.
pub(crate) struct Wanted;

/// The longest time that Consul gives to a session.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The longest lock-delay.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

impl Sessions {
    pub(crate) fn new(client: Arc<Client>, mirror: Arc<Mirror>, takeover: TakeoverMode, checks: Vec<String>) -> Self {
        Self { client, mirror, takeover, checks, state: Arc::default() }
    }

    /// Whether a session is one of ours, alive or not.
    pub(crate) fn is_own(&self, session: &str) -> bool {
        self.lock().own.contains(session)
    }

    /// One of our own sessions, if it is not known to be over.
    pub(crate) fn alive(&self, session: &str) -> Option<Arc<Session>> {
        self.lock().live.get(session).filter(|session| !session.is_over()).cloned()
    }

    /// The session for this lease, made if need be. That goes on when the call is given up.
    pub(crate) async fn session(&self, lease: Duration, clock: &Clock) -> Result<Arc<Session>, StoreError> {
        if lease.subsec_nanos() != 0 || lease.is_zero() {
            return Err(StoreError::denied("Consul counts leases in whole seconds: use one like 15s"));
        }
        if lease > LONGEST {
            return Err(StoreError::denied("Consul keeps no session longer than a day: use a shorter lease"));
        }
        let slot = self.lock().by_lease.entry(lease).or_default().clone();
        if let Some(session) = slot.try_lock().ok().and_then(|slot| slot.clone()).filter(|one| !one.is_over()) {
            return Ok(session);
        }
        let (client, mirror, state) = (self.client.clone(), self.mirror.clone(), self.state.clone());
        let lock_delay = match self.takeover {
            TakeoverMode::Instant => Duration::ZERO,
            TakeoverMode::Safe => lease.min(LONGEST_DELAY),
        };
        let terms = Terms::release(lease, lock_delay, &self.checks);
        let clock = clock.clone();
        let task = tokio::spawn(async move {
            let mut slot = slot.lock().await;
            if let Some(session) = slot.as_ref().filter(|session| !session.is_over()) {
                return Ok(session.clone());
            }
            let open = Session::open(client, mirror, lease, &terms, clock);
            let late = |_| Err(StoreError::refused("Consul has not made a session in time"));
            let session = Arc::new(tokio::time::timeout(lease / 4, open).await.unwrap_or_else(late)?);
            *slot = Some(session.clone());
            let mut state = lock(&state);
            state.live.retain(|_, session| !session.is_over());
            state.live.insert(session.id.clone(), session.clone());
            state.own.insert(session.id.clone());
            Ok(session)
        });
        task.await.unwrap_or_else(|error| Err(StoreError::refused("the session was cut off").because(error)))
    }

    /// The session for this lease, with a heartbeat that is not older than a part of it.
    pub(crate) async fn fresh(
        &self,
        lease: Duration,
        age: Duration,
        clock: &Clock,
    ) -> Result<Arc<Session>, StoreError> {
        let session = self.session(lease, clock).await?;
        let from = clock.now() - age;
        if session.renewed() >= from {
            return Ok(session);
        }
        match session.beat(from).await {
            // It ended while nobody needed it.
            Err(_) if session.is_over() => self.session(lease, clock).await,
            answer => answer.map(|_| session),
        }
    }

    /// Has a session ready for a bid on a seat that another holds, so that nothing is to be made when it is
    /// free. Its lease is a guess: that of the holder.
    pub(crate) fn keep_ready(self: &Arc<Self>, lease: Duration, clock: &Clock) -> Arc<Wanted> {
        let mut state = self.lock();
        if let Some((wanted, keeper)) = state.keepers.get(&lease)
            && let Some(wanted) = wanted.upgrade()
            && !keeper.is_finished()
        {
            return wanted;
        }
        let wanted = Arc::new(Wanted);
        let (sessions, minded, clock) = (Arc::downgrade(self), Arc::downgrade(&wanted), clock.clone());
        let keeper = tokio::spawn(async move {
            while let Some(sessions) = sessions.upgrade().filter(|_| minded.strong_count() > 0) {
                let kept = tokio::time::timeout(lease / 3, sessions.fresh(lease, lease / 4, &clock)).await;
                drop(sessions);
                if let Ok(Err(error)) = kept {
                    tracing::debug!(%error, "no session can be kept ready");
                }
                tokio::time::sleep(lease / 3).await;
            }
        });
        state.keepers.insert(lease, (Arc::downgrade(&wanted), keeper.abort_handle()));
        wanted
    }

    /// Keeps nothing any more: sessions are left to lapse.
    pub(crate) fn close(&self) {
        for (_, (_, keeper)) in self.lock().keepers.drain() {
            keeper.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
