//! Seats that are written together with their locks, on the session that holds those.
//!
//! A lock that a statement has taken stays when its transaction is undone. So when one fails, every lock
//! that it was to take is given back before anything else is done: none of them was held before.

use tenure_core::StoreError;
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};

use crate::gather::{Call, Gather};
use crate::leases::{Columns, Write, written};
use crate::link::Link;
use crate::seats::Mark;

/// What is to be written, under a lock.
pub(crate) struct Locked {
    pub(crate) write: Write,
    /// Whether the lock is still to be taken.
    pub(crate) to_lock: bool,
    pub(crate) key: i64,
    /// The session that is to hold the seat; `None`: it is given up.
    pub(crate) session: Option<i64>,
    /// After how long the server is to end the session, if it has not heard from us.
    pub(crate) idle: Option<String>,
}

/// A new seat.
pub(crate) struct LockedInsert(pub(crate) Locked);

/// A seat in place of another.
pub(crate) struct LockedUpdate(pub(crate) Locked, pub(crate) Mark);

impl Call for LockedInsert {
    /// The life of the data that it was written in, if it was.
    type Answer = Option<String>;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.locked_insert
    }

    fn target(&self) -> Option<(&str, &str)> {
        Some((self.0.write.seat.as_str(), ""))
    }

    fn weight(&self) -> usize {
        self.0.write.json.len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Self::Answer>, Error> {
        let calls: Vec<&Locked> = calls.iter().map(|call| &call.0).collect();
        write(link, &link.server.seats.insert_locked, &calls, &[]).await
    }
}

impl Call for LockedUpdate {
    type Answer = Option<String>;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.locked_update
    }

    fn target(&self) -> Option<(&str, &str)> {
        Some((self.0.write.seat.as_str(), ""))
    }

    fn weight(&self) -> usize {
        self.0.write.json.len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Self::Answer>, Error> {
        let (held, identities): (Vec<&str>, Vec<&str>) =
            calls.iter().map(|call| (call.1.nonce.as_str(), call.1.identity.as_str())).unzip();
        let calls: Vec<&Locked> = calls.iter().map(|call| &call.0).collect();
        let marks: [(&(dyn ToSql + Sync), Type); 2] = [(&held, Type::TEXT_ARRAY), (&identities, Type::TEXT_ARRAY)];
        write(link, &link.server.seats.update_locked, &calls, &marks).await
    }
}

async fn write(
    link: &Link,
    sql: &str,
    calls: &[&Locked],
    marks: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Option<String>>, Error> {
    let writes = || calls.iter().map(|call| &call.write);
    let columns = Columns::of(writes());
    let to_lock: Vec<bool> = calls.iter().map(|call| call.to_lock).collect();
    let keys: Vec<i64> = calls.iter().map(|call| call.key).collect();
    let sessions: Vec<Option<i64>> = calls.iter().map(|call| call.session).collect();
    // The same for all, as they share a session.
    let idle = calls.first().and_then(|call| call.idle.as_deref());
    let mut params = columns.params();
    params.extend([
        (&to_lock as &(dyn ToSql + Sync), Type::BOOL_ARRAY),
        (&keys, Type::INT8_ARRAY),
        (&sessions, Type::INT8_ARRAY),
        (&idle, Type::TEXT),
    ]);
    params.extend(marks.iter().map(|(value, kind)| (*value, kind.clone())));
    match link.ask(sql, &params).await {
        Ok(rows) => Ok(written(&rows, writes())),
        Err(error) => {
            let taken: Vec<i64> = calls.iter().filter(|call| call.to_lock).map(|call| call.key).collect();
            if error.code().is_some() && !taken.is_empty() {
                unlock(link, &taken).await;
            }
            Err(error)
        }
    }
}

/// Whether this very session holds a seat's lock.
pub(crate) async fn is_held(link: &Link, key: i64) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted \
         AND pid = pg_backend_pid() AND classid::int8 << 32 | objid::int8 = $1)";
    let rows = link.query(sql, &[(&key, Type::INT8)]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Gives locks back that are not needed. If that fails, the session is ended rather than left with them.
pub(crate) async fn unlock(link: &Link, keys: &[i64]) {
    if link.ask("SELECT pg_advisory_unlock(key) FROM unnest($1) AS key", &[(&keys, Type::INT8_ARRAY)]).await.is_err() {
        link.cut();
    }
}
