//! Followers: they wait in the server for the leader's session to end, without polling, and keep their own session open
//! for the bid.
//!
//! Each session holds a lock of its own for as long as it lives. A follower requests the same lock, and the server makes
//! the request wait. A follower needs one waiting connection for each process that leads a seat it follows, however many
//! seats that process leads.
//!
//! A waiting statement may hold resources of the server, such as a snapshot. So a follower waits in slices of
//! [`WAIT_SLICE`]: each slice is a statement and a transaction of its own, and the next slice begins as soon as one ends.
//! Slices do not delay the notice: if the session ends during a slice, the server grants the lock at that moment; if it
//! ends between two slices, the server grants it at the start of the next one. For the same reason a wait that begins
//! after the session's end still reports it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{BoxFuture, Interest, InterestChange, Life, News, PushDetail, SeatName, SessionId, StoreError};
use tokio::time::Instant;

use super::locks::{LockServer, LockSession};
use super::{VersionParts, session_of};
use crate::{Connection, Liveness, ReadySessions, Sessions};

/// How long one statement waits. An abandoned wait occupies its connection for at most this time.
pub const WAIT_SLICE: Duration = Duration::from_secs(5);

/// How long a connection is kept for the next wait. A follower that does not win the seat waits for the new leader a
/// moment later, and opening another connection takes longer than a whole hand-over.
const KEEP_SPARE: Duration = Duration::from_millis(200);

/// The result of one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// The slice is over, and nothing has happened.
    Nothing,
    /// The session may have released a seat.
    Release,
    /// The session has ended.
    End,
}

/// The sessions that this process waits for, and its own sessions that it keeps ready for bids. It outlives a watch by a
/// slice, as a waiting connection is occupied until its slice ends.
pub(super) struct Following<L: LockServer> {
    /// The seats that other processes hold: for each, the holder's session, and the lease of this process's candidate.
    seats: HashMap<SeatName, (i64, Duration)>,
    waiting: BTreeSet<i64>,
    waits: FuturesUnordered<BoxFuture<'static, (i64, Waited<L>)>>,
    spare: Option<(Arc<L::Connection>, Instant)>,
    /// Whether the server also pushes changes, so that a wait which fails is only repeated later.
    is_pushed: bool,
    ready: ReadySessions,
}

/// The result of a slice, and its connection.
type Waited<L> = Result<(Arc<<L as LockServer>::Connection>, Noticed), StoreError>;

impl<L: LockServer> Default for Following<L> {
    fn default() -> Self {
        Self {
            seats: HashMap::new(),
            waiting: BTreeSet::new(),
            waits: FuturesUnordered::new(),
            spare: None,
            is_pushed: false,
            ready: ReadySessions::default(),
        }
    }
}

impl<L: LockServer> Following<L> {
    /// Waits for the holders of the seats that the engine is interested in, for as long as the future is polled. Returns
    /// the error of a wait that failed, unless the server also pushes changes.
    pub(super) async fn follow(
        &mut self,
        server: &Arc<L>,
        pool: &Sessions<LockSession<L>>,
        interest: &Interest,
        news: &News,
        pushed: Option<&Liveness>,
    ) -> StoreError {
        self.is_pushed = pushed.is_some();
        // A new watch receives all interests again.
        self.seats.clear();
        self.ready = ReadySessions::default();
        loop {
            let spare_until = self.spare.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                // Interests go first, so that no wait is repeated for a session that is no longer followed.
                biased;
                deltas = interest.next() => {
                    for delta in deltas {
                        if let Some((wanted, pushed)) = delta.wanted.as_ref().zip(pushed) {
                            pushed.limit_silence(wanted.lease / 3);
                        }
                        self.ready.update(delta.clone(), pool, session_of);
                        self.on_delta(delta, server, pool);
                    }
                }
                Some((session, waited)) = self.waits.next() => {
                    self.waiting.remove(&session);
                    match waited {
                        Err(error) if !self.is_pushed => return error,
                        waited => self.on_waited(session, waited, server, news),
                    }
                }
                () = tokio::time::sleep_until(spare_until), if self.spare.is_some() => self.spare = None,
            }
        }
    }

    fn on_delta(
        &mut self,
        InterestChange { seat, wanted }: InterestChange,
        server: &Arc<L>,
        pool: &Sessions<LockSession<L>>,
    ) {
        self.seats.remove(&seat);
        let Some(wanted) = wanted else { return };
        // A session that has already ended needs no wait.
        let Some(held) = wanted.seen.and_then(|seen| seen.seat).filter(|held| held.life == Life::Held) else { return };
        let Some(session) = VersionParts::parse(&held.version).and_then(|parts| parts.session) else { return };
        if pool.is_own(&session.to_string()) {
            return;
        }
        self.seats.insert(seat, (session, wanted.lease));
        if !self.waiting.contains(&session) {
            let spare = self.spare.take().map(|(connection, _)| connection);
            self.wait_for(session, wanted.lease, spare.filter(|spare| spare.liveness().is_good()), server);
        }
    }

    fn wait_for(&mut self, session: i64, lease: Duration, connection: Option<Arc<L::Connection>>, server: &Arc<L>) {
        self.waiting.insert(session);
        let (server, is_pushed) = (server.clone(), self.is_pushed);
        self.waits.push(Box::pin(async move {
            let waited = wait(&*server, session, connection).await;
            if let Err(error) = waited.as_ref()
                && is_pushed
            {
                tracing::debug!(%error, "cannot wait for the end of a leader's session; trying again later");
                tokio::time::sleep(lease / 3).await;
            }
            (session, waited)
        }));
    }

    fn on_waited(&mut self, session: i64, waited: Waited<L>, server: &Arc<L>, news: &News) {
        let mut followed = self.seats.iter().filter(|(_, (other, _))| *other == session).peekable();
        let lease = followed.peek().map(|(_, (_, lease))| *lease);
        if matches!(waited, Err(_) | Ok((_, Noticed::Release))) {
            followed.for_each(|(seat, _)| news.holder(seat, PushDetail::Nothing));
        }
        match (waited, lease) {
            (Ok((connection, Noticed::End)), _) => {
                self.spare = Some((connection, Instant::now() + KEEP_SPARE));
                news.session_over(&SessionId::new(session.to_string()));
            }
            (Ok((connection, _)), Some(lease)) => self.wait_for(session, lease, Some(connection), server),
            (Ok((connection, _)), None) => self.spare = Some((connection, Instant::now() + KEEP_SPARE)),
            (Err(_), _) => {}
        }
    }
}

/// Waits for a session to end, for one slice.
async fn wait<L: LockServer>(server: &L, session: i64, connection: Option<Arc<L::Connection>>) -> Waited<L> {
    let connection = match connection {
        Some(connection) => connection,
        None => server.connect_to_wait().await?,
    };
    let noticed = server.wait(&connection, session).await?;
    Ok((connection, noticed))
}
