//! Followers in `mode=session`: they wait for the leader's session to end, without polling, and keep their own
//! session open for the bid.
//!
//! Each session locks a key of its own for as long as it lives. A follower requests the same lock, and the server
//! makes the request wait. A follower needs one waiting connection for each process that leads a seat it follows,
//! however many seats that process leads.
//!
//! A waiting statement holds a snapshot, and a snapshot keeps `VACUUM`, in the whole database, from removing rows
//! that were deleted after it was taken. So a follower waits in slices of [`WAIT_SLICE`]: each slice is a
//! statement and a transaction of its own, and the next slice begins as soon as one ends. Slices do not delay the
//! notice: if the session ends during a slice, the server grants the lock at that moment; if it ends between two
//! slices, the server grants it at the start of the next one. For the same reason a wait that begins after the
//! session's end still reports it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{BoxFuture, Interest, InterestChange, Life, News, PushDetail, SeatName, StoreError};
use tenure_kit::{Connection, WarmSession};
use tokio::time::Instant;

use crate::connection::{Connector, PgConnection, Purpose};
use crate::notifications::session_id;
use crate::seats::VersionParts;
use crate::sessions::Sessions;

/// How long one statement waits. It delays `VACUUM` by at most this time, and an abandoned wait occupies its
/// connection for at most this time.
pub(crate) const WAIT_SLICE: Duration = Duration::from_secs(5);

/// How long a connection is kept for the next wait. A follower that does not win the seat waits for the new leader a
/// moment later, and opening another connection takes longer than a whole hand-over.
const KEEP_SPARE: Duration = Duration::from_millis(200);

/// The sessions that this process waits for, and its own sessions that it keeps open for bids. It outlives a
/// watch, as a waiting connection is occupied until its slice ends.
#[derive(Default)]
pub(crate) struct Following {
    /// The seats that other processes hold: for each, the holder's session, and the lease of this process's
    /// candidate.
    seats: HashMap<SeatName, (i64, Duration)>,
    waiting: BTreeSet<i64>,
    waits: FuturesUnordered<BoxFuture<'static, (i64, Waited)>>,
    spare: Option<(PgConnection, Instant)>,
    /// Open sessions of this process, by lease, so that a bid on a seat that it follows need not open one.
    ready: BTreeMap<Duration, Arc<WarmSession>>,
}

/// The result of a slice: its connection, and whether the session ended.
type Waited = Result<(PgConnection, bool), StoreError>;

impl Following {
    /// Waits for the holders of the seats that the engine is interested in, for as long as the future is polled.
    /// `calls` is the connection on which notifications arrive.
    pub(crate) async fn follow(&mut self, sessions: &Sessions, calls: &PgConnection, interest: &Interest, news: &News) {
        // A new watch receives all interests again.
        self.seats.clear();
        loop {
            let spare_until = self.spare.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                // Interests go first, so that no wait is repeated for a session that is no longer followed.
                biased;
                deltas = interest.next() => {
                    for delta in deltas {
                        delta.wanted.iter().for_each(|wanted| calls.liveness().limit_silence(wanted.lease / 3));
                        self.on_delta(delta, sessions);
                    }
                    self.ready.retain(|lease, _| self.seats.values().any(|(_, other)| other == lease));
                }
                Some((session, waited)) = self.waits.next() => self.on_waited(session, waited, sessions, news),
                () = tokio::time::sleep_until(spare_until), if self.spare.is_some() => self.spare = None,
            }
        }
    }

    fn on_delta(&mut self, InterestChange { seat, wanted }: InterestChange, sessions: &Sessions) {
        self.seats.remove(&seat);
        let Some(wanted) = wanted else { return };
        // A session that has already ended needs no wait.
        let Some(held) = wanted.seen.and_then(|seen| seen.seat).filter(|held| held.life == Life::Held) else { return };
        let Some(session) = VersionParts::parse(&held.version).and_then(|parts| parts.session) else { return };
        if sessions.pool.is_own(session_id(session).as_str()) {
            return;
        }
        self.ready.entry(wanted.lease).or_insert_with(|| sessions.pool.keep_warm(wanted.lease));
        self.seats.insert(seat, (session, wanted.lease));
        if !self.waiting.contains(&session) {
            let connection = self
                .spare
                .take()
                .map(|(connection, _)| connection)
                .filter(|connection| connection.liveness().is_good());
            self.wait_for(session, wanted.lease, connection, sessions);
        }
    }

    fn wait_for(&mut self, session: i64, lease: Duration, connection: Option<PgConnection>, sessions: &Sessions) {
        self.waiting.insert(session);
        let connector = sessions.connector.clone();
        self.waits.push(Box::pin(async move {
            let waited = wait(&connector, session, connection).await;
            if let Err(error) = &waited {
                tracing::debug!(%error, "cannot wait for the end of a leader's session; trying again later");
                tokio::time::sleep(lease / 3).await;
            }
            (session, waited)
        }));
    }

    fn on_waited(&mut self, session: i64, waited: Waited, sessions: &Sessions, news: &News) {
        self.waiting.remove(&session);
        let mut followed = self.seats.iter().filter(|(_, (other, _))| *other == session).peekable();
        match (waited, followed.peek()) {
            (Ok((connection, true)), _) => {
                self.spare = Some((connection, Instant::now() + KEEP_SPARE));
                news.session_over(&session_id(session));
            }
            (Ok((connection, false)), Some((_, (_, lease)))) => {
                let lease = *lease;
                self.wait_for(session, lease, Some(connection), sessions);
            }
            (Ok((_, false)), None) => {}
            (Err(_), _) => followed.for_each(|(seat, _)| news.holder(seat, PushDetail::Nothing)),
        }
    }
}

/// Waits for a session to end, for one slice.
async fn wait(connector: &Connector, session: i64, connection: Option<PgConnection>) -> Waited {
    let connection = match connection {
        Some(connection) => connection,
        None => connector.connect(Purpose::Waiting).await?,
    };
    let has_ended = connection.text(&slice_sql(session)).await?.as_deref() == Some("true");
    Ok((connection, has_ended))
}

/// Returns the SQL of one slice, which answers whether the session ended. The block catches the lock's time-out,
/// so that the server does not log an error for every slice. The lock is released at once.
fn slice_sql(session: i64) -> String {
    let (high, low) = ((session >> 32) as i32, (session & 0x7fff_ffff) as i32);
    format!(
        "DO $$ BEGIN PERFORM pg_advisory_lock_shared({high}, {low}); \
         PERFORM pg_advisory_unlock_shared({high}, {low}), set_config('tenure.ended', 'true', false); \
         EXCEPTION WHEN lock_not_available THEN PERFORM set_config('tenure.ended', 'false', false); END $$; \
         SELECT current_setting('tenure.ended')"
    )
}
