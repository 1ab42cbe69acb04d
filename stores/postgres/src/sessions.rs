//! `mode=session`: seats that are held by the locks of a session, and freed with it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::{Clock, Life, Record, SeatName, StoreError, Swap, Version};

use crate::bells::Bells;
use crate::faults;
use crate::leases::{self, Glance, Reader};
use crate::link::{Dialer, Link};
use crate::schema::lock_id_of;
use crate::seats::Mark;
use crate::session::Session;

/// The sessions of a store: one for each lease, as the server is told how long to wait for us.
pub(crate) struct Sessions {
    lock_id: Option<i64>,
    pool: Arc<Pool>,
}

/// What outlives a call.
struct Pool {
    dialer: Arc<Dialer>,
    bells: Arc<Bells>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_lease: HashMap<Duration, Arc<tokio::sync::Mutex<Option<Arc<Session>>>>>,
    live: HashMap<i64, Arc<Session>>,
    /// All that we have ever had.
    own: HashSet<i64>,
    /// The leases for which a session is kept ready.
    ready: HashSet<Duration>,
}

impl Sessions {
    pub(crate) fn new(dialer: Arc<Dialer>, bells: Arc<Bells>, lock_id: Option<i64>) -> Self {
        Self { lock_id, pool: Arc::new(Pool { dialer, bells, state: Mutex::default() }) }
    }

    fn key(&self, seat: &SeatName) -> i64 {
        self.lock_id.unwrap_or_else(|| lock_id_of(seat.as_str()))
    }

    /// Whether a session is one of ours, alive or not.
    pub(crate) fn is_own(&self, session: i64) -> bool {
        self.pool.lock().own.contains(&session)
    }

    /// One of our own sessions, if it lives.
    pub(crate) fn alive(&self, session: i64) -> Option<Arc<Session>> {
        self.pool.lock().live.get(&session).filter(|session| !session.is_over()).cloned()
    }

    pub(crate) async fn read(&self, link: &Arc<Link>, seat: &SeatName, reader: Reader) -> Result<Glance, StoreError> {
        if link.server.pooled {
            return Err(faults::pooler());
        }
        let row = leases::ask(link, seat, reader).await?;
        leases::glance(&row, |row, record, session, lock_id| {
            if record.is_vacant() {
                return Ok(Life::Over);
            }
            if session.is_none() {
                return Err(leases::other_mode("lease", "session"));
            }
            if lock_id != Some(self.key(seat)) {
                return Err(StoreError::denied(format!(
                    "the seat is held on the lock {}, and this program would use {}: give the same lock_id everywhere",
                    lock_id.unwrap_or_default(),
                    self.key(seat)
                )));
            }
            let alive: Option<bool> = row.get(10);
            Ok(if alive == Some(true) { Life::Held } else { Life::Over })
        })
    }

    pub(crate) async fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
        clock: Clock,
    ) -> Result<Swap, StoreError> {
        let expected = match expected.map(Mark::parse) {
            Some(None) => return Ok(Swap::Lost),
            Some(mark) => mark,
            None => None,
        };
        // Over the session that holds it, if that is one of ours: no other could have the lock.
        let holder = expected.as_ref().and_then(|mark| mark.session).and_then(|session| self.alive(session));
        let session = match holder {
            Some(session) => session,
            None => self.pool.session(next.lease, clock).await?,
        };
        if self.lock_id.is_some() && session.is_shared(seat) {
            return Err(StoreError::denied(
                "lock_id is one lock, for one election: give another election a store of its own",
            ));
        }
        session.swap(seat, self.key(seat), expected, next).await
    }

    pub(crate) async fn renew(&self, seat: &SeatName, held: &Version) -> Result<Swap, StoreError> {
        let Some(mark) = Mark::parse(held) else { return Ok(Swap::Lost) };
        match mark.session.and_then(|session| self.alive(session)) {
            Some(session) => session.renew(seat, held, &mark, self.key(seat)).await,
            None => Ok(Swap::Lost),
        }
    }

    /// The socket of the session that holds a seat.
    ///
    /// A session is not replaced during a term: a seat is held on the session that won it, and the end of
    /// that session is the end of the term.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        let sessions: Vec<_> = self.pool.lock().live.values().cloned().collect();
        sessions.iter().find_map(|session| session.lifeline(seat).transpose()).transpose()
    }

    /// Has a session ready for bids on seats that others hold, so that nothing is to be opened when one is
    /// free. Its lease is a guess: that of the holder.
    pub(crate) fn keep_ready(&self, lease: Duration, clock: Clock) {
        if self.pool.lock().ready.insert(lease) {
            tokio::spawn(keep_ready(Arc::downgrade(&self.pool), lease, clock));
        }
    }
}

/// Returns when nobody follows any more.
async fn keep_ready(pool: Weak<Pool>, lease: Duration, clock: Clock) {
    loop {
        let Some(here) = pool.upgrade() else { return };
        let opened = here.session(lease, clock.clone()).await;
        drop(here);
        if let Ok(session) = opened {
            session.warm_up().await;
            let over = session.over();
            drop(session);
            over.await;
        }
        tokio::time::sleep(lease).await;
        let Some(here) = pool.upgrade() else { return };
        let mut state = here.lock();
        if !here.bells.mind_any(|session| !state.own.contains(&session)) {
            state.ready.remove(&lease);
            return;
        }
    }
}

impl Pool {
    /// The session for this lease, opened if need be. That goes on when the call is given up.
    async fn session(&self, lease: Duration, clock: Clock) -> Result<Arc<Session>, StoreError> {
        let slot = self.lock().by_lease.entry(lease).or_default().clone();
        if let Some(session) = slot.try_lock().ok().and_then(|slot| slot.clone()).filter(|session| !session.is_over())
            && self.lock().live.contains_key(&session.id)
        {
            return Ok(session);
        }
        let (dialer, bells) = (self.dialer.clone(), self.bells.clone());
        let task = tokio::spawn(async move {
            let mut slot = slot.lock().await;
            if let Some(session) = slot.as_ref().filter(|session| !session.is_over()) {
                return Ok(session.clone());
            }
            let session = Arc::new(Session::open(&dialer, lease, clock).await?);
            let (id, over) = (session.id, session.over());
            tokio::spawn(async move {
                over.await;
                bells.ring_session(id);
            });
            *slot = Some(session.clone());
            Ok(session)
        });
        let session: Arc<Session> =
            task.await.unwrap_or_else(|error| Err(StoreError::refused("the session was cut off").because(error)))?;
        let mut state = self.lock();
        state.live.retain(|_, session| !session.is_over());
        state.live.insert(session.id, session.clone());
        state.own.insert(session.id);
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
