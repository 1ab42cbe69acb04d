//! `mode=session`: sessions hold the seats, and the server frees them when a session ends.
//!
//! Each session holds two application locks for as long as it lives. `tenure:ID` shows that it lives: the session holds it
//! exclusively, and all others request it only shared. `tenure:ID:bell` wakes followers: a follower requests it, and the
//! server makes the request wait, without a transaction. When the session releases a seat, it lets go of the bell, so
//! that the server grants it to all waiting followers, and takes it again behind them. When the session ends, the server
//! grants it as well. The same batch of the follower releases the bell, and tests whether the session has ended.
//!
//! All of this is only a hint (`Push::Hint`): a woken follower reads the seat, and that read decides. A change can be missed
//! between two batches of a follower. Then the follower reads the seat a third of a lease later.
//!
//! The server has no time-out for a session that is silent, as that of a paused process is. So a session records its
//! heartbeats, and a follower that has seen the same heartbeat for a lease ends the session (`KILL`), if its login is
//! allowed to. The lease is counted on the follower's own clock, from the receipt of the reading that first had the
//! heartbeat, and the paused leader counts it from the send of the heartbeat, which was earlier. So its term is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Record, SeatName, StoreError};
use tenure_kit::lock;
use tenure_kit::sql::{BatchError, LockConnection, LockServer, Noticed, WAIT_SLICE, WriteSet, Written, want};
use tiberius::Row;
use tokio::time::Instant;

use crate::connection::{Batch, Connector, SqlConnection, number, text};
use crate::{leases, seats};

type Session = tenure_kit::sql::LockSession<Connector>;

/// Takes both locks of a session.
const OPEN: &str = "/* tenure: open session */ DECLARE @mine nvarchar(255) = CONCAT(N'tenure:', @P2), \
     @bell nvarchar(255) = CONCAT(N'tenure:', @P2, N':bell'), @granted int;\n\
     EXEC @granted = sp_getapplock @Resource = @mine, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;\n\
     IF @granted >= 0 EXEC @granted = sp_getapplock @Resource = @bell, @LockMode = 'Exclusive', @LockOwner = 'Session', \
     @LockTimeout = 0;\nSELECT @granted;";

/// Waits for the bell of a session. If no session holds the bell, waits for the end of the session itself: so a follower
/// never asks again and again.
const WAIT: &str = "/* tenure: wait */ DECLARE @lock nvarchar(255) = CONCAT(N'tenure:', @P2), \
     @bell nvarchar(255) = CONCAT(N'tenure:', @P2, N':bell'), @millis int = @P3, @rung int, @ended int, @released int = 0;\n\
     EXEC @rung = sp_getapplock @Resource = @bell, @LockMode = 'Shared', @LockOwner = 'Session', @LockTimeout = @millis;\n\
     IF @rung >= 0 EXEC @released = sp_releaseapplock @Resource = @bell, @LockOwner = 'Session';\n\
     IF @rung = 0 AND @released = 0 BEGIN \
     EXEC @ended = sp_getapplock @Resource = @lock, @LockMode = 'Shared', @LockOwner = 'Session', @LockTimeout = @millis; \
     IF @ended >= 0 EXEC @released = sp_releaseapplock @Resource = @lock, @LockOwner = 'Session'; END;\n\
     SELECT @rung, @ended, @released, APPLOCK_TEST('public', @lock, 'Shared', 'Session');";

/// Ends a session that is still alive, still named by a row, and whose last heartbeat is still that in `@P3`. If it ends by
/// itself between the test and `KILL`, within microseconds, a new session of the same number could be ended in its place.
const KILL: &str = "/* tenure: kill */ DECLARE @lock nvarchar(255) = CONCAT(N'tenure:', @P2), @kill nvarchar(40), \
     @spid int = (SELECT IIF(ISJSON(value) = 1, CONVERT(int, JSON_VALUE(value, '$.spid')), NULL) FROM {notes} WHERE seat = 0x AND kind = 'heartbeat' \
     AND note_key = CONVERT(varbinary(1024), CONVERT(varchar(20), @P2)) AND expires = @P3);\n\
     SET @kill = CONCAT(N'KILL ', @spid);\n\
     IF @spid IS NOT NULL AND EXISTS (SELECT 1 FROM {seats} WHERE session = @P2) \
     AND APPLOCK_TEST('public', @lock, 'Shared', 'Session') = 0 EXEC (@kill);";

impl LockServer for Connector {
    type Connection = SqlConnection;

    fn number_of(&self, _: &Record) -> String {
        want::new_number()
    }

    async fn open(&self, session: i64, _: Duration) -> Result<Arc<SqlConnection>, StoreError> {
        let connection = Arc::new(self.connect().await?);
        let results = connection.run(Batch { sql: OPEN.to_owned(), session, ..Batch::default() }).await?;
        match grant(results.iter().flatten().next(), 0)? {
            Grant::AtOnce | Grant::AfterWaiting => Ok(connection),
            Grant::TimedOut | Grant::Interrupted => {
                Err(StoreError::refused("another session has the same random number; the next attempt draws another"))
            }
        }
    }

    async fn heartbeat(&self, session: &Session) -> Result<Vec<String>, StoreError> {
        let results = match session.connection.run(batch(session, &seats::heartbeat(), String::new())).await {
            // The table was dropped, and with it every seat. The leaders then read their seats.
            Err(failed) if failed.is_missing_table() => Vec::new(),
            results => results?,
        };
        let versions = results.into_iter().next().unwrap_or_default();
        Ok(versions.iter().filter_map(|row| text(row, 0)).collect())
    }

    async fn write(&self, session: &Session, set: &WriteSet) -> Result<Written, StoreError> {
        let want = want::writes(set, Some(session.id), |_| None).to_string();
        let batch = batch(session, &seats::write_on_session(set), want);
        leases::run(&session.connection, batch).await
    }

    /// No lock belongs to a seat: it is held by the row that names the session.
    async fn release_leftovers(&self, _: &Session, _: &[SeatName]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect_to_wait(&self) -> Result<Arc<SqlConnection>, StoreError> {
        self.connect().await.map(Arc::new)
    }

    async fn wait(&self, connection: &Arc<SqlConnection>, session: i64) -> Result<Noticed, StoreError> {
        let millis = WAIT_SLICE.as_millis() as i64;
        let batch = Batch { sql: WAIT.to_owned(), session, number: millis, ..Batch::default() };
        let row = connection.run(batch).await?.into_iter().flatten().next();
        let row = row.as_ref();
        // A lock that is not released would keep the leader from taking its bell again.
        if let Err(error) = released(row, 2) {
            connection.abort();
            return Err(error);
        }
        let is_over = row.and_then(|row| number(row, 3)) == Some(1);
        Ok(match grant(row, 0)? {
            _ if is_over => Noticed::End,
            Grant::AfterWaiting => Noticed::Release,
            // The bell was not held, and the wait for the end of the session is over.
            Grant::AtOnce => grant(row, 1).map(|_| Noticed::Nothing)?,
            Grant::TimedOut | Grant::Interrupted => Noticed::Nothing,
        })
    }
}

/// An answer of `sp_getapplock`.
enum Grant {
    /// The lock was free (0).
    AtOnce,
    /// The lock was granted after another session let go of it (1).
    AfterWaiting,
    /// Another session holds the lock (-1).
    TimedOut,
    /// The request was cancelled (-2) or chosen as a deadlock victim (-3).
    Interrupted,
}

/// Reads an answer of `sp_getapplock`. An answer that its documentation does not have proves nothing.
fn grant(row: Option<&Row>, column: usize) -> Result<Grant, StoreError> {
    match row.and_then(|row| number(row, column)) {
        Some(0) => Ok(Grant::AtOnce),
        Some(1) => Ok(Grant::AfterWaiting),
        Some(-1) => Ok(Grant::TimedOut),
        Some(-2 | -3) => Ok(Grant::Interrupted),
        Some(-999) => {
            Err(StoreError::denied("sp_getapplock rejects its parameters (-999); check that this is SQL Server"))
        }
        Some(code) => Err(StoreError::unknown(format!("sp_getapplock returned {code}, which its documentation lacks"))),
        None => Err(StoreError::unknown("sp_getapplock returned nothing")),
    }
}

/// Reads an answer of `sp_releaseapplock`.
fn released(row: Option<&Row>, column: usize) -> Result<(), StoreError> {
    match row.and_then(|row| number(row, column)) {
        Some(0) => Ok(()),
        Some(-999) => Err(StoreError::refused("sp_releaseapplock has not released a lock (-999)")),
        code => Err(StoreError::unknown(format!("sp_releaseapplock returned {code:?}, which its documentation lacks"))),
    }
}

/// Returns a batch on a session, with the session's lease.
fn batch(session: &Session, sql: &str, want: String) -> Batch {
    let number = i64::try_from(session.lease.as_millis()).unwrap_or(i64::MAX);
    let sql = session.connection.server.sql(&seats::wait_for_rows(sql, session.lease));
    Batch { sql, want, session: session.id, number }
}

/// The last heartbeat of a session that is alive and holds a seat.
pub(crate) struct Heard {
    pub(crate) session: i64,
    /// A number that each heartbeat changes.
    pub(crate) beat: i64,
    /// In milliseconds.
    pub(crate) lease: u64,
}

/// The heartbeats of other sessions, and when each was first seen.
#[derive(Default)]
pub(crate) struct Silences {
    beats: Mutex<HashMap<i64, (i64, Instant)>>,
    has_warned: AtomicBool,
}

/// How long a session is remembered that is no longer read.
const REMEMBER: Duration = Duration::from_secs(3600);

impl Silences {
    /// Records heartbeats, and returns the sessions that have been silent for their lease.
    fn overdue(&self, heard: Vec<Heard>) -> Vec<Heard> {
        let (now, mut beats) = (Instant::now(), lock(&self.beats));
        beats.retain(|_, (_, since)| since.elapsed() < REMEMBER);
        let is_overdue = |heard: &Heard| {
            let (beat, since) = beats.entry(heard.session).or_insert((heard.beat, now));
            let is_overdue = *beat == heard.beat && now - *since >= Duration::from_millis(heard.lease);
            // A session that could not be ended is tried again after another lease.
            if *beat != heard.beat || is_overdue {
                (*beat, *since) = (heard.beat, now);
            }
            is_overdue
        };
        heard.into_iter().filter(is_overdue).collect()
    }
}

/// Ends the sessions that have been silent for their lease, in a task of its own.
pub(crate) fn end_silent(connector: &Arc<Connector>, connection: &Arc<SqlConnection>, heard: Vec<Heard>) {
    for Heard { session, beat, .. } in connector.silences.overdue(heard) {
        let (connector, connection) = (connector.clone(), connection.clone());
        tokio::spawn(async move {
            let batch = Batch { sql: connection.server.sql(KILL), session, number: beat, ..Batch::default() };
            if let Err(failed) = connection.run(batch).await
                && !connector.silences.has_warned.swap(true, Ordering::Relaxed)
            {
                let error = StoreError::from(failed);
                tracing::warn!(
                    %error,
                    "cannot end the session of a leader that has been silent for a lease, as a paused process is: grant this \
                     login ALTER ANY CONNECTION, or end the leader's process"
                );
            }
        });
    }
}
