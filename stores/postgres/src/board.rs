//! The board: notes as rows. Requests have a lifetime on the server's clock; announcements last while
//! their process attends, on the same clock.
//!
//! A process that no longer attends is cleared away by those who do: first its announcements, so many
//! at a time, then its own row. Whoever clears has the row locked meanwhile, and a process that comes
//! back waits for that before it is told to put everything again: nothing that it puts then is cleared.

use std::time::Duration;

use tenure_core::{Attended, Incarnation, Note, NoteKind, SeatName, StoreError};
use tokio_postgres::types::Type;

use crate::bells::Bell;
use crate::link::Link;
use crate::schema::{channel, quoted};

/// The statements, for one schema.
pub(crate) struct Statements {
    put: String,
    attend: String,
    list: String,
    remove: String,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        let (notes, channel) = (format!("{}.notes", quoted(schema)), channel(schema));
        let attending = format!("{}.attending", quoted(schema));
        Self {
            // Clears away what has outlived its lifetime on the same board, and what was announced by those
            // who never came, or came too late to be cleared away by others.
            put: format!(
                "WITH old AS (DELETE FROM {notes} WHERE seat = $1 AND (kind, key) <> ($2, $3) \
                 AND CASE kind WHEN 'request' THEN expires <= clock_timestamp() \
                 ELSE expires <= clock_timestamp() - interval '1 hour' \
                 AND NOT EXISTS (SELECT 1 FROM {attending} WHERE process = key) END), \
                 put AS (INSERT INTO {notes} (seat, kind, key, value, lifetime, expires) \
                 VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $5 * interval '1 microsecond') \
                 ON CONFLICT (seat, kind, key) DO UPDATE \
                 SET value = excluded.value, lifetime = excluded.lifetime, expires = excluded.expires RETURNING 1) \
                 SELECT pg_notify('{channel}', $6) FROM put WHERE $6 IS NOT NULL"
            ),
            // Nobody waits for a row of another process.
            attend: format!(
                "WITH gone AS MATERIALIZED (SELECT process FROM {attending} \
                 WHERE until <= clock_timestamp() AND process <> $1 FOR UPDATE SKIP LOCKED), \
                 old AS MATERIALIZED (SELECT seat, key FROM {notes} WHERE kind = 'announcement' \
                 AND key IN (SELECT process FROM gone) LIMIT {AT_A_TIME} FOR UPDATE SKIP LOCKED), \
                 cleared AS (DELETE FROM {notes} USING old \
                 WHERE notes.seat = old.seat AND notes.kind = 'announcement' AND notes.key = old.key), \
                 left_behind AS (DELETE FROM {attending} WHERE process IN (SELECT process FROM gone) \
                 AND NOT EXISTS (SELECT 1 FROM {notes} WHERE kind = 'announcement' AND key = process)), \
                 still AS (UPDATE {attending} SET until = clock_timestamp() + $2 * interval '1 microsecond' \
                 WHERE process = $1 AND until > clock_timestamp() RETURNING 1), \
                 anew AS (INSERT INTO {attending} (process, until) \
                 SELECT $1, clock_timestamp() + $2 * interval '1 microsecond' WHERE NOT EXISTS (SELECT 1 FROM still) \
                 ON CONFLICT (process) DO UPDATE SET until = excluded.until) \
                 SELECT EXISTS (SELECT 1 FROM still)"
            ),
            list: format!(
                "SELECT key, value, lifetime FROM {notes} WHERE seat = $1 AND kind = $2 AND CASE kind \
                 WHEN 'announcement' THEN EXISTS (SELECT 1 FROM {attending} WHERE process = key AND until > clock_timestamp()) \
                 ELSE expires > clock_timestamp() END ORDER BY expires, key"
            ),
            remove: format!("DELETE FROM {notes} WHERE seat = $1 AND kind = $2 AND key = $3"),
        }
    }
}

/// How many announcements are cleared away at once: a process may leave ten thousand behind, and whoever
/// clears them has elections to keep.
const AT_A_TIME: u32 = 1000;

/// A lifetime as the database has it. A century is enough.
fn micros(lifetime: Duration) -> i64 {
    i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000)
}

pub(crate) async fn put(link: &Link, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
    let lifetime = micros(note.lifetime);
    let bell = (note.kind == NoteKind::Request).then(|| Bell::Requests.payload(seat));
    link.query(
        &link.server.board.put,
        &[
            (&seat.as_str(), Type::TEXT),
            (&note.kind.as_str(), Type::TEXT),
            (&note.key, Type::TEXT),
            (&note.value, Type::TEXT),
            (&lifetime, Type::INT8),
            (&bell, Type::TEXT),
        ],
    )
    .await
    .map(drop)
}

/// Counts a process as there for a while.
pub(crate) async fn attend(link: &Link, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
    let (process, lifetime) = (process.to_string(), micros(lifetime));
    let rows = link.query(&link.server.board.attend, &[(&process, Type::TEXT), (&lifetime, Type::INT8)]).await?;
    let still = rows.first().is_some_and(|row| row.get(0));
    Ok(if still { Attended::Still } else { Attended::Anew })
}

pub(crate) async fn list(link: &Link, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
    let rows =
        link.query(&link.server.board.list, &[(&seat.as_str(), Type::TEXT), (&kind.as_str(), Type::TEXT)]).await?;
    let note = |row: &tokio_postgres::Row| {
        let lifetime = Duration::from_micros(row.get::<_, i64>(2).try_into().unwrap_or_default());
        Note { kind, key: row.get(0), value: row.get(1), lifetime }
    };
    Ok(rows.iter().map(note).collect())
}

pub(crate) async fn remove(link: &Link, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
    let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&seat.as_str(), Type::TEXT), (&kind.as_str(), Type::TEXT), (&key, Type::TEXT)];
    link.query(&link.server.board.remove, &params).await.map(drop)
}
