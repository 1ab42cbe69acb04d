//! `mode=session`: the locks of a session hold the seats, and the server frees them when the session ends.
//!
//! Each session holds two more locks for as long as it lives. `tenure:ID` shows that it lives; no other session ever takes
//! it. `tenure:ID:0` and `tenure:ID:1` are its *release locks*: it holds one of them, and when it releases a seat it takes the other
//! one and lets go of the first. Followers request the one that it holds, and the server makes the request wait: without
//! a transaction. The server grants the lock when the leader changes them or its session ends, and the same statement releases
//! it, so that all followers are woken one after the other without a round trip in between.
//!
//! All of this is only a hint (`Push::Hint`): a woken follower reads the seat, and that read decides. A change can be missed
//! between two statements of a follower. Then the follower reads the seat a third of a lease later.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Record, SeatName, StoreError};
use tenure_kit::sql::BatchError;
use tenure_kit::sql::want;
use tenure_kit::sql::{LockServer, Noticed, WAIT_SLICE, WriteSet, Written};

use crate::connection::{Connector, MyConnection};
use crate::{leases, seats};

type Session = tenure_kit::sql::LockSession<Connector>;

impl LockServer for Connector {
    type Connection = MyConnection;

    fn number_of(&self, _: &Record) -> String {
        want::new_number()
    }

    async fn open(&self, session: i64, _: Duration) -> Result<Arc<MyConnection>, StoreError> {
        let connection = Arc::new(self.connect().await?);
        let sql = format!("SELECT GET_LOCK('tenure:{session}', 0) AND GET_LOCK('tenure:{session}:0', 0)");
        let is_taken = connection.run(sql).await?.into_iter().flatten().any(|row| row.get(0) == Some(1_u8));
        if !is_taken {
            return Err(StoreError::refused(
                "another session has the same random number; the next attempt draws another",
            ));
        }
        Ok(connection)
    }

    async fn heartbeat(&self, session: &Session) -> Result<Vec<String>, StoreError> {
        let results = match session.connection.run(sql(session, seats::HEARTBEAT)).await {
            // The table was dropped, and with it every seat. The leaders then read their seats.
            Err(failed) if failed.is_missing_table() => Vec::new(),
            results => results?,
        };
        Ok(results.into_iter().flatten().map(mysql_async::from_row).collect())
    }

    async fn write(&self, session: &Session, set: &WriteSet) -> Result<Written, StoreError> {
        let want = want::writes(set, Some(session.id), |seat| Some(self.options.lock_name(seat)));
        leases::run(&session.connection, &want, &sql(session, &seats::write_locked(set))).await
    }

    async fn release_leftovers(&self, session: &Session, seats: &[SeatName]) -> Result<(), StoreError> {
        let want = want::seats(seats, |seat| Some(self.options.lock_name(seat)));
        let sql = seats::about(&want, &sql(session, seats::RELEASE));
        session.connection.run(sql).await?;
        Ok(())
    }

    async fn connect_to_wait(&self) -> Result<Arc<MyConnection>, StoreError> {
        self.connect().await.map(Arc::new)
    }

    async fn wait(&self, connection: &Arc<MyConnection>, session: i64) -> Result<Noticed, StoreError> {
        let seconds = WAIT_SLICE.as_secs();
        // Each lock is requested only while the session holds it, and released at once. Another follower may have the
        // other one for a moment.
        let sql = format!(
            "SELECT CASE WHEN IS_USED_LOCK('tenure:{session}:0') = IS_USED_LOCK('tenure:{session}') \
             THEN IF(GET_LOCK('tenure:{session}:0', {seconds}) = 1, RELEASE_LOCK('tenure:{session}:0'), 0) \
             WHEN IS_USED_LOCK('tenure:{session}:1') = IS_USED_LOCK('tenure:{session}') \
             THEN IF(GET_LOCK('tenure:{session}:1', {seconds}) = 1, RELEASE_LOCK('tenure:{session}:1'), 0) \
             ELSE 1 END, IS_USED_LOCK('tenure:{session}') IS NOT NULL"
        );
        let row = connection.run(sql).await?.into_iter().flatten().next();
        let (is_woken, is_alive): (Option<bool>, bool) = row.map(mysql_async::from_row).unwrap_or((None, true));
        Ok(match (is_alive, is_woken) {
            (false, _) => Noticed::End,
            (true, Some(true)) => Noticed::Release,
            (true, _) => Noticed::Nothing,
        })
    }
}

/// Returns statements with the number of the session and its lease in seconds, rounded up: a session must never end
/// before its lease.
fn sql(session: &Session, sql: &str) -> String {
    let seconds = session.lease.as_nanos().div_ceil(1_000_000_000).clamp(1, 2_147_483);
    let sql = session.connection.server.sql(sql);
    sql.replace("{session}", &session.id.to_string()).replace("{seconds}", &seconds.to_string())
}
