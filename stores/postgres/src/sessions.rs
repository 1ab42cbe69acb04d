//! `mode=session`: seats that are held by the locks of a session, and freed with it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{Answers, Expect, Interest, Life, News, Reading, SeatName, StoreError, Swap, Write};
use tenure_kit::PooledSession;
use tokio::sync::Mutex;

use crate::connection::{Connector, PgConnection};
use crate::errors;
use crate::following::Following;
use crate::leases::{self, Batch};
use crate::pushes::name_of;
use crate::schema::lock_of;
use crate::seats::Mark;
use crate::session::{self, Renewal, Session};

/// The sessions of a store: one for each lease, as the server is told how long to wait for us.
pub(crate) struct Sessions {
    lock_id: Option<i64>,
    /// The one seat that `lock_id` is for.
    lock_is_for: OnceLock<SeatName>,
    pub(crate) connector: Arc<Connector>,
    pub(crate) pool: tenure_kit::Sessions<Session>,
    following: Mutex<Following>,
}

/// The seats of a call that one session is asked about; `None`: that of their lease.
#[derive(Default)]
struct Group {
    session: Option<Arc<PooledSession<Session>>>,
    kept: Vec<Renewal>,
    new: Batch<Write>,
    next: Batch<Write>,
}

impl Sessions {
    pub(crate) fn new(connector: Arc<Connector>, lock_id: Option<i64>) -> Self {
        let opened_by = connector.clone();
        let pool = tenure_kit::Sessions::new(move |lease, clock| {
            let connector = opened_by.clone();
            async move { Session::open(&connector, lease, lock_id, clock).await }
        });
        Self { lock_id, lock_is_for: OnceLock::new(), connector, pool, following: Mutex::default() }
    }

    pub(crate) async fn read(
        &self,
        connection: &Arc<PgConnection>,
        seats: &[SeatName],
        to: &Answers<Reading>,
    ) -> Result<(), StoreError> {
        if connection.server.pooled {
            return Err(errors::pooler());
        }
        let life = |row: &tokio_postgres::Row, seat: &SeatName, record: &tenure_core::Record| {
            let (session, lock_id): (Option<i64>, Option<i64>) = (row.get(3), row.get(4));
            if record.is_vacant() {
                return Ok(Life::Over);
            }
            if session.is_none() {
                return Err(leases::other_mode("lease", "session"));
            }
            let ours = lock_of(seat, self.lock_id);
            if lock_id != Some(ours) {
                return Err(StoreError::denied(format!(
                    "the seat is held on the lock {}, and this program would use {ours}: give the same lock_id everywhere",
                    lock_id.unwrap_or_default(),
                )));
            }
            let alive: Option<bool> = row.get(9);
            Ok(if alive == Some(true) { Life::Held } else { Life::Over })
        };
        leases::read_by(connection, &connection.server.seats.read_alive, seats, to, life).await
    }

    /// Writes each seat over the session that holds it, if that is one of ours: no other could have the lock. Otherwise
    /// over that of the lease.
    pub(crate) async fn write(&self, lease: Duration, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let mut groups: BTreeMap<Option<i64>, Group> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            if self.lock_id.is_some() && *self.lock_is_for.get_or_init(|| write.seat.clone()) != write.seat {
                to.set(place, Err(errors::one_lock()));
                continue;
            }
            let mark = Mark::of(&write.expect);
            let holder = mark.as_ref().and_then(|mark| self.pool.find(name_of(mark.session?).as_str()));
            let is_lost = match write.expect {
                Expect::Absent(_) => false,
                Expect::Version(_) => mark.is_none(),
                Expect::Held(_) => holder.is_none(),
            };
            if is_lost {
                to.set(place, Ok(Swap::Lost));
                continue;
            }
            let group = groups.entry(holder.as_ref().map(|session| session.id)).or_default();
            group.session = holder;
            match &write.expect {
                Expect::Held(version) => {
                    let (seat, version) = (write.seat.clone(), version.clone());
                    group.kept.push(Renewal { place, seat, version, nonce: mark.and_then(|mark| mark.number()) });
                }
                Expect::Absent(_) => group.new.push(place, write.clone(), None),
                Expect::Version(_) => group.next.push(place, write.clone(), mark),
            }
        }
        let groups = groups.into_values().map(async |Group { session, kept, new, next }| {
            let session = match session {
                Some(session) => session,
                None => self.pool.get(lease).await?,
            };
            let (written, ()) = tokio::join!(
                session::write(session.clone(), new, next, to.clone()),
                session::keep(session, kept, to.clone()),
            );
            written
        });
        join_all(groups).await.into_iter().fold(Ok(()), Result::and)
    }

    /// Has sessions ready for bids on seats that others hold, and waits for the sessions of those. Never returns.
    pub(crate) async fn follow(&self, interest: &Interest, news: &News) {
        self.following.lock().await.follow(self, interest, news).await;
    }

    /// The socket of the session that holds a seat.
    ///
    /// A session is not replaced during a term: a seat is held on the session that won it, and the end of
    /// that session is the end of the term.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.pool.live().iter().find_map(|session| session.lifeline(seat).transpose()).transpose()
    }
}
