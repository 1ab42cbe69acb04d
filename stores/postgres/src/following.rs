//! What a follower does in `mode=session`: it waits for the leader's session to end, without polling, and has a session
//! of its own ready by then.
//!
//! Each session holds a lock of its own for as long as it lives. A follower asks for the same lock, and
//! the server makes it wait: one connection for each process that leads something, whatever the number of
//! its seats.
//!
//! A statement that waits holds a snapshot, and a snapshot keeps `VACUUM` from removing rows that were
//! deleted after it was taken, in the whole database. So a follower waits in pieces ([`PIECE`]): each is a
//! statement and a transaction of its own, and the next one begins as soon as it has ended. The lock is
//! granted in the middle of a piece as fast as ever. If the session ends between two pieces, the next one
//! is granted at once.
//!
//! Nothing is missed: a wait tells of a session's end also if that was before it began.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{BoxFuture, Interest, InterestChange, Life, News, PushDetail, SeatName, StoreError};
use tenure_kit::{Connection, WarmSession};
use tokio::time::Instant;

use crate::connection::{Connector, PgConnection, Purpose};
use crate::pushes::name_of;
use crate::seats::Mark;
use crate::sessions::Sessions;

/// How long one statement waits. `VACUUM` cannot remove rows that were deleted less than this ago, and a
/// wait that is given up occupies its connection for no longer than this.
pub(crate) const PIECE: Duration = Duration::from_secs(5);

/// How long a connection that has waited is kept for the next wait: whoever has not won looks whom to wait for at once,
/// and opening another connection takes longer than a whole hand-over.
const SPARE: Duration = Duration::from_millis(200);

/// The sessions that are waited for, and those that are kept ready. It outlives a watch: a connection that waits is
/// occupied until its piece is over.
#[derive(Default)]
pub(crate) struct Following {
    /// The seats that others hold, their sessions, and the leases of our own candidates.
    seats: HashMap<SeatName, (i64, Duration)>,
    waiting: BTreeSet<i64>,
    waits: FuturesUnordered<BoxFuture<'static, (i64, Waited)>>,
    spare: Option<(PgConnection, Instant)>,
    /// Sessions of our own that are open for bids on those seats, so that nothing is to be opened when one is free.
    ready: BTreeMap<Duration, Arc<WarmSession>>,
}

/// The connection that has waited, and whether the session has ended.
type Waited = Result<(PgConnection, bool), StoreError>;

impl Following {
    /// Follows what the engine is interested in, for as long as this is polled.
    pub(crate) async fn follow(&mut self, sessions: &Sessions, interest: &Interest, news: &News) {
        // All that matters is told again.
        self.seats.clear();
        loop {
            let spare_until = self.spare.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                // What is followed first: whom nobody follows any more is not waited for.
                biased;
                deltas = interest.next() => {
                    deltas.into_iter().for_each(|delta| self.on_delta(delta, sessions));
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
        // Once it is over, there is nothing more to wait for.
        let Some(held) = wanted.seen.and_then(|seen| seen.seat).filter(|held| held.life == Life::Held) else { return };
        let Some(session) = Mark::parse(&held.version).and_then(|mark| mark.session) else { return };
        if sessions.pool.is_own(name_of(session).as_str()) {
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
                tracing::debug!(%error, "the end of a leader's session cannot be waited for");
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
                self.spare = Some((connection, Instant::now() + SPARE));
                news.session_over(&name_of(session));
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

/// Waits for a session to end, for one piece.
async fn wait(connector: &Connector, session: i64, connection: Option<PgConnection>) -> Waited {
    let connection = match connection {
        Some(connection) => connection,
        None => connector.connect(Purpose::Waiting).await?,
    };
    let has_ended = connection.text(&piece(session)).await?.as_deref() == Some("true");
    Ok((connection, has_ended))
}

/// Waits for one piece, and answers whether the session has ended. The block catches the time-out of the
/// lock, so that the server does not log an error for every piece. The lock is given back at once.
fn piece(session: i64) -> String {
    let (high, low) = ((session >> 32) as i32, (session & 0x7fff_ffff) as i32);
    format!(
        "DO $$ BEGIN PERFORM pg_advisory_lock_shared({high}, {low}); \
         PERFORM pg_advisory_unlock_shared({high}, {low}), set_config('tenure.ended', 'true', false); \
         EXCEPTION WHEN lock_not_available THEN PERFORM set_config('tenure.ended', 'false', false); END $$; \
         SELECT current_setting('tenure.ended')"
    )
}
