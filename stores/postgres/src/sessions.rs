//! `mode=session`: the locks of a session hold the seats, and the server frees them when the session ends.
//!
//! Only the server knows which locks a session holds, so each write reads them from `pg_locks`.
//!
//! A waiting statement holds a snapshot, and a snapshot keeps `VACUUM`, in the whole database, from removing rows that
//! were deleted after it was taken: for at most [`WAIT_SLICE`](tenure_kit::sql::WAIT_SLICE), as each slice of a wait is a
//! transaction of its own.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Record, SeatName, StoreError};
use tenure_kit::nonce_of;
use tenure_kit::sql::{LockConnection, LockServer, Noticed, WriteKind, WriteSet, Written};
use tokio_postgres::types::Type;

use crate::connection::{Connector, Param, PgConnection, Purpose, number, numbers};
use crate::handshake;
use crate::leases;
use crate::schema::lock_of;

type Session = tenure_kit::sql::LockSession<Connector>;

impl LockServer for Connector {
    type Connection = PgConnection;

    fn number_of(&self, record: &Record) -> String {
        nonce_of(record)
    }

    async fn open(&self, session: i64, lease: Duration) -> Result<Arc<PgConnection>, StoreError> {
        let connection = Arc::new(self.connect(Purpose::Session(lease)).await?);
        let halves = halves(session).map(|half| -> Param { (Box::new(half), Type::INT4) });
        // The server parses and plans the statement of a bid now, as that takes several times as long as the bid.
        let bid = self.params(&connection, session, lease, &WriteSet { kind: WriteKind::Next, rows: Vec::new() });
        let opening = async {
            tokio::join!(
                connection.run("SELECT pg_try_advisory_lock($1, $2)", &halves),
                connection.run(&connection.server.seats.update_locked, &bid),
            )
        };
        let (locked, _) = tokio::time::timeout(lease, opening).await.map_err(|_| {
            connection.abort();
            StoreError::unknown("PostgreSQL does not answer")
        })?;
        if !locked?.first().is_some_and(|row| row.get(0)) {
            return Err(StoreError::refused(
                "another session has the same random number; the next attempt draws another",
            ));
        }
        Ok(connection)
    }

    async fn heartbeat(&self, session: &Session) -> Result<Vec<String>, StoreError> {
        let statements = &session.connection.server.seats;
        let rows = match session.connection.run(&statements.heartbeat, &[number(session.id)]).await {
            // The table was dropped, and with it every seat. The leaders then read their seats, and the connection for
            // reads creates the table or reports why it cannot.
            Err(failed) if failed.is_missing_table() => Vec::new(),
            rows => rows?,
        };
        Ok(rows.first().and_then(|row| row.get(0)).unwrap_or_default())
    }

    async fn write(&self, session: &Session, set: &WriteSet) -> Result<Written, StoreError> {
        let statements = &session.connection.server.seats;
        let sql = if set.kind == WriteKind::New { &statements.insert_locked } else { &statements.update_locked };
        let params = self.params(&session.connection, session.id, session.lease, set);
        leases::written(session.connection.run(sql, &params).await)
    }

    async fn release_leftovers(&self, session: &Session, seats: &[SeatName]) -> Result<(), StoreError> {
        let params = [number(session.id), self.keys(seats.iter())];
        session.connection.run(&session.connection.server.seats.release_leftovers, &params).await?;
        Ok(())
    }

    async fn connect_to_wait(&self) -> Result<Arc<PgConnection>, StoreError> {
        self.connect(Purpose::Waiting).await.map(Arc::new)
    }

    /// The block catches the lock's time-out, so that the server does not log an error for every slice. The lock is
    /// released at once.
    async fn wait(&self, connection: &Arc<PgConnection>, session: i64) -> Result<Noticed, StoreError> {
        let [high, low] = halves(session);
        let sql = format!(
            "DO $$ BEGIN PERFORM pg_advisory_lock_shared({high}, {low}); \
             PERFORM pg_advisory_unlock_shared({high}, {low}), set_config('tenure.ended', 'true', false); \
             EXCEPTION WHEN lock_not_available THEN PERFORM set_config('tenure.ended', 'false', false); END $$; \
             SELECT current_setting('tenure.ended')"
        );
        let has_ended = connection.text(&sql).await?.as_deref() == Some("true");
        Ok(if has_ended { Noticed::End } else { Noticed::Nothing })
    }
}

impl LockConnection for PgConnection {
    fn abort(&self) {
        self.abort();
    }

    #[cfg(unix)]
    fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline> {
        Ok(self.socket.try_clone()?.into())
    }
}

impl Connector {
    fn params(&self, connection: &PgConnection, session: i64, lease: Duration, set: &WriteSet) -> Vec<Param> {
        let holder = |vacant: bool| (!vacant).then_some(session);
        let sessions: Vec<_> = set.rows.iter().map(|row| holder(row.write.record.is_vacant())).collect();
        let idle = handshake::idle_session_timeout(connection.server.version, lease);
        let mut params = leases::columns(set);
        params.push(self.keys(set.rows.iter().map(|row| &row.write.seat)));
        params.push((Box::new(sessions), Type::INT8_ARRAY));
        params.push((Box::new(idle), Type::TEXT));
        params.extend(leases::expectations(set));
        params
    }

    /// Returns the keys of the seats' locks.
    fn keys<'a>(&self, seats: impl Iterator<Item = &'a SeatName>) -> Param {
        numbers(seats.map(|seat| lock_of(seat, self.options.lock_id)).collect())
    }
}

/// Returns the two halves of a session's number, of 31 bits each, which are the key of its lock.
fn halves(session: i64) -> [i32; 2] {
    [(session >> 32) as i32, (session & 0x7fff_ffff) as i32]
}
