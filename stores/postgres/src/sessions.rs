//! `mode=session`: the locks of a session hold the seats, and the server frees them when the session ends.

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
use crate::leases::{self, WriteSet};
use crate::notifications::session_id;
use crate::schema::lock_of;
use crate::seats::VersionParts;
use crate::session::{self, Renewal, Session};

/// The sessions of a store: one for each length of lease, as a session's time-outs on the server depend on it.
pub(crate) struct Sessions {
    lock_id: Option<i64>,
    /// The only seat that `lock_id` is used for.
    lock_id_seat: OnceLock<SeatName>,
    pub(crate) connector: Arc<Connector>,
    pub(crate) pool: tenure_kit::Sessions<Session>,
    following: Mutex<Following>,
}

/// The seats of a call that go to one session.
#[derive(Default)]
struct Group {
    /// The session that holds the seats; `None`: the session for bids with this lease.
    session: Option<Arc<PooledSession<Session>>>,
    renewals: Vec<Renewal>,
    new: WriteSet<Write>,
    next: WriteSet<Write>,
}

impl Sessions {
    pub(crate) fn new(connector: Arc<Connector>, lock_id: Option<i64>) -> Self {
        let opened_by = connector.clone();
        let pool = tenure_kit::Sessions::new(move |lease, clock| {
            let connector = opened_by.clone();
            async move { Session::open(&connector, lease, lock_id, clock).await }
        });
        Self { lock_id, lock_id_seat: OnceLock::new(), connector, pool, following: Mutex::default() }
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
                    "the seat is held by the lock {}, but this program uses the lock {ours}; use the same lock_id in all \
                     candidates",
                    lock_id.unwrap_or_default(),
                )));
            }
            let alive: Option<bool> = row.get(9);
            Ok(if alive == Some(true) { Life::Held } else { Life::Over })
        };
        leases::read_by(connection, &connection.server.seats.read_alive, seats, to, life).await
    }

    /// Writes each seat on the session that holds it, if that session belongs to this process: no other session
    /// can take the lock. All other seats are written on the session for this lease.
    pub(crate) async fn write(&self, lease: Duration, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let mut groups: BTreeMap<Option<i64>, Group> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            if self.lock_id.is_some() && *self.lock_id_seat.get_or_init(|| write.seat.clone()) != write.seat {
                to.set(place, Err(errors::one_lock()));
                continue;
            }
            let expected = VersionParts::of(&write.expect);
            let holder = expected.as_ref().and_then(|parts| self.pool.find(session_id(parts.session?).as_str()));
            let is_lost = match write.expect {
                Expect::Absent(_) => false,
                // The session of a dead process ends with its connection, so its will needs no exception.
                Expect::Version(_) | Expect::HolderDead(_) => expected.is_none(),
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
                    let nonce = expected.and_then(|parts| parts.nonce_as_number());
                    group.renewals.push(Renewal { place, seat, version, nonce });
                }
                Expect::Absent(_) => group.new.push(place, write.clone(), None),
                Expect::Version(_) | Expect::HolderDead(_) => group.next.push(place, write.clone(), expected),
            }
        }
        let groups = groups.into_values().map(async |Group { session, renewals, new, next }| {
            let session = match session {
                Some(session) => session,
                None => self.pool.get(lease).await?,
            };
            let (written, ()) = tokio::join!(
                session::write(session.clone(), new, next, to.clone()),
                session::renew(session, renewals, to.clone()),
            );
            written
        });
        join_all(groups).await.into_iter().fold(Ok(()), Result::and)
    }

    /// Waits for the sessions of other leaders to end, and keeps sessions open for bids on their seats. Never
    /// returns.
    pub(crate) async fn follow(&self, calls: &PgConnection, interest: &Interest, news: &News) {
        self.following.lock().await.follow(self, calls, interest, news).await;
    }

    /// Returns a duplicate of the socket of the session that holds a seat.
    ///
    /// It stays valid for the whole term: the session that won a seat holds it until the term ends, and the end
    /// of the session ends the term.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.pool.live().iter().find_map(|session| session.lifeline(seat).transpose()).transpose()
    }
}
