//! `mode=session`: the locks of a session hold the seats, and the server frees them when the session ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{Answers, Expect, Interest, Life, News, Reading, Record, SeatName, StoreError, Swap, Write};
use tenure_kit::{PooledSession, lock};
use tokio::sync::Mutex;

use crate::connection::{Connector, MyConnection};
use crate::following::Following;
use crate::leases::{self, SeatRow, WriteSet};
use crate::seats::VersionParts;
use crate::session::{self, Renewal, Session};

/// The sessions of a store: one for each length of lease, as a session's time-out on the server depends on it. A session
/// also serves reads and notes, so that a process needs one connection.
pub(crate) struct Sessions {
    pub(crate) connector: Arc<Connector>,
    pub(crate) pool: tenure_kit::Sessions<Session>,
    following: Mutex<Following>,
    /// The lease of the session that was used last.
    lease: std::sync::Mutex<Option<Duration>>,
}

/// The seats of a call that go to one session.
#[derive(Default)]
struct Group {
    /// The session that holds the seats; `None`: the session for bids with this lease.
    session: Option<Arc<PooledSession<Session>>>,
    renewals: Vec<Renewal>,
    new: WriteSet,
    next: WriteSet,
}

impl Sessions {
    pub(crate) fn new(connector: Arc<Connector>) -> Self {
        let opened_by = connector.clone();
        let pool = tenure_kit::Sessions::new(move |lease, clock| {
            let connector = opened_by.clone();
            async move { Session::open(&connector, lease, clock).await }
        });
        Self { connector, pool, following: Mutex::default(), lease: std::sync::Mutex::default() }
    }

    /// Returns the connection of the session for this lease, or of the session that was used last. `None` if no session
    /// was used yet.
    pub(crate) async fn connection(&self, lease: Option<Duration>) -> Option<Result<Arc<MyConnection>, StoreError>> {
        let lease = match lease {
            Some(lease) => *lock(&self.lease).insert(lease),
            None => (*lock(&self.lease))?,
        };
        let session = self.pool.get(lease).await;
        // A session that no longer answers and has no seats is of no use, and its connection would stay open.
        self.pool.live().iter().filter(|session| session.is_useless()).for_each(|session| session.connection.close());
        Some(session.map(|session| session.connection.clone()))
    }

    pub(crate) async fn read(
        &self,
        lease: Duration,
        seats: &[SeatName],
        to: &Answers<Reading>,
    ) -> Result<(), StoreError> {
        let life = |row: &SeatRow, _: &SeatName, record: &Record| match (record.is_vacant(), &row.session) {
            (true, _) => Ok(Life::Over),
            (_, None) => Err(leases::other_mode("lease", "session")),
            (_, Some(_)) => Ok(if row.is_alive { Life::Held } else { Life::Over }),
        };
        match self.connection(Some(lease)).await {
            Some(connection) => leases::read_by(&connection?, seats, to, life).await,
            None => Ok(()),
        }
    }

    /// Writes each seat on the session that holds it, if that session belongs to this process: no other session can take
    /// the lock. All other seats are written on the session for this lease.
    pub(crate) async fn write(&self, lease: Duration, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let mut groups: BTreeMap<Option<String>, Group> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            let expected = VersionParts::of(&write.expect);
            let holder = expected.as_ref().and_then(|parts| self.pool.find(parts.session.as_deref()?));
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
            let group = groups.entry(holder.as_ref().map(|session| session.id.clone())).or_default();
            group.session = holder;
            match (&write.expect, expected) {
                (Expect::Held(version), Some(VersionParts { number, .. })) => {
                    let (seat, version) = (write.seat.clone(), version.clone());
                    group.renewals.push(Renewal { place, seat, version, number });
                }
                (Expect::Absent(_), _) => group.new.push(place, write),
                _ => group.next.push(place, write),
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

    /// Waits for the sessions of other leaders to end or to release seats, until that fails.
    pub(crate) async fn follow(&self, interest: &Interest, news: &News) -> StoreError {
        self.following.lock().await.follow(self, interest, news).await
    }

    /// Returns a duplicate of the socket of the session that holds a seat. It stays valid for the whole term: the session
    /// that won a seat holds it until the term ends, and the end of the session ends the term.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.pool.live().iter().find_map(|session| session.lifeline(seat).transpose()).transpose()
    }
}
