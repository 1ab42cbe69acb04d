//! Followers in `mode=session`: they wait for the leader's session to end or to release a seat, without polling.
//!
//! A follower needs one waiting connection for each process that leads a seat it follows, however many seats that process
//! leads. The connection requests the lock of the leader's bell that the leader holds (`session.rs`), and the server makes
//! the request wait: without a transaction, and for at most [`WAIT_SECONDS`]. The server grants the lock when the leader
//! rings or its session ends, and the same statement releases it, so that all followers are woken one after the other
//! without a round trip in between.
//!
//! All of this is only a hint (`Push::Hint`): a woken follower reads the seat, and that read decides. A ring can be missed
//! if the leader rings twice between the two statements of a follower. Then the follower reads the seat a third of a lease
//! later.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{BoxFuture, Interest, InterestChange, Life, News, PushDetail, SeatName, SessionId, StoreError};
use tenure_kit::Connection;
use tokio::time::Instant;

use crate::connection::{Connector, MyConnection};
use crate::seats::VersionParts;
use crate::sessions::Sessions;

/// How long one statement waits. An abandoned wait occupies its connection for at most this time.
const WAIT_SECONDS: u32 = 5;

/// How long a connection is kept for the next wait. A follower that does not win the seat waits for the new leader a
/// moment later.
const KEEP_SPARE: Duration = Duration::from_millis(200);

/// The sessions that this process waits for. It outlives a watch, as a waiting connection is occupied until its
/// statement ends.
#[derive(Default)]
pub(crate) struct Following {
    /// The seats that other processes hold, each with the holder's session.
    seats: HashMap<SeatName, String>,
    waiting: BTreeSet<String>,
    waits: FuturesUnordered<BoxFuture<'static, (String, Waited)>>,
    spare: Option<(Arc<MyConnection>, Instant)>,
}

/// The result of one wait: its connection, and what it has noticed.
type Waited = Result<(Arc<MyConnection>, Noticed), StoreError>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Noticed {
    /// The wait is over, and nothing happened.
    Nothing,
    /// The session has released a seat, or may have released one before the wait began.
    Bell,
    /// The session has ended.
    End,
}

impl Following {
    /// Waits for the holders of the seats that the engine is interested in, for as long as the future is polled. Returns
    /// if a wait fails: the engine then starts another watch after a pause.
    pub(crate) async fn follow(&mut self, sessions: &Sessions, interest: &Interest, news: &News) -> StoreError {
        // A new watch receives all interests again.
        self.seats.clear();
        loop {
            let spare_until = self.spare.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            tokio::select! {
                // Interests go first, so that no wait is repeated for a session that is no longer followed.
                biased;
                deltas = interest.next() => deltas.into_iter().for_each(|delta| self.on_delta(delta, sessions)),
                Some((session, waited)) = self.waits.next() => {
                    self.waiting.remove(&session);
                    match waited {
                        Ok((connection, noticed)) => self.on_waited(session, connection, noticed, sessions, news),
                        Err(error) => return error,
                    }
                }
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
        if sessions.pool.is_own(&session) {
            return;
        }
        self.seats.insert(seat, session.clone());
        if !self.waiting.contains(&session) {
            let spare = self.spare.take().map(|(connection, _)| connection);
            self.wait_for(session, spare.filter(|spare| spare.liveness().is_good()), true, sessions);
        }
    }

    fn wait_for(
        &mut self,
        session: String,
        connection: Option<Arc<MyConnection>>,
        is_first: bool,
        sessions: &Sessions,
    ) {
        self.waiting.insert(session.clone());
        let connector = sessions.connector.clone();
        self.waits.push(Box::pin(async move {
            let waited = wait(&connector, &session, connection, is_first).await;
            (session, waited)
        }));
    }

    fn on_waited(
        &mut self,
        session: String,
        connection: Arc<MyConnection>,
        noticed: Noticed,
        sessions: &Sessions,
        news: &News,
    ) {
        let followed: Vec<_> =
            self.seats.iter().filter(|(_, other)| **other == session).map(|(seat, _)| seat.clone()).collect();
        match noticed {
            Noticed::End => news.session_over(&SessionId::new(session.clone())),
            Noticed::Bell => followed.iter().for_each(|seat| news.holder(seat, PushDetail::Nothing)),
            Noticed::Nothing => {}
        }
        if noticed == Noticed::End || followed.is_empty() {
            self.spare = Some((connection, Instant::now() + KEEP_SPARE));
        } else {
            self.wait_for(session, Some(connection), false, sessions);
        }
    }
}

/// Waits once for a session to ring or to end. The first wait for a session only connects, and reports a bell: a seat
/// that was released after it was read, but before this process could wait, is read again.
async fn wait(connector: &Connector, session: &str, connection: Option<Arc<MyConnection>>, is_first: bool) -> Waited {
    let connection = match connection {
        Some(connection) => connection,
        None => Arc::new(connector.connect(Duration::from_secs(u64::from(WAIT_SECONDS) * 2)).await?),
    };
    let sql = match is_first {
        true => format!("SELECT 1, IS_USED_LOCK('tenure:{session}') IS NOT NULL"),
        // Each lock is requested only while the session holds it, and released at once.
        false => format!(
            "SELECT CASE WHEN IS_USED_LOCK('tenure:{session}:0') IS NOT NULL \
             THEN IF(GET_LOCK('tenure:{session}:0', {WAIT_SECONDS}) = 1, RELEASE_LOCK('tenure:{session}:0'), 0) \
             WHEN IS_USED_LOCK('tenure:{session}:1') IS NOT NULL \
             THEN IF(GET_LOCK('tenure:{session}:1', {WAIT_SECONDS}) = 1, RELEASE_LOCK('tenure:{session}:1'), 0) \
             ELSE 1 END, IS_USED_LOCK('tenure:{session}') IS NOT NULL"
        ),
    };
    let row = connection.run(sql).await?.into_iter().flatten().next();
    let (is_woken, is_alive): (Option<bool>, bool) = row.map(mysql_async::from_row).unwrap_or((None, true));
    let noticed = match (is_woken.unwrap_or(false), is_alive) {
        (_, false) => Noticed::End,
        (true, true) => Noticed::Bell,
        (false, true) => Noticed::Nothing,
    };
    Ok((connection, noticed))
}
