//! The board: notes as rows, each with a lifetime on the server's clock.

use std::time::Duration;

use tenure_core::{Note, NoteKind, SeatName, StoreError};
use tokio_postgres::types::Type;

use crate::bells::Bell;
use crate::link::Link;
use crate::schema::{channel, quoted};

/// The statements, for one schema.
pub(crate) struct Statements {
    put: String,
    list: String,
    remove: String,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        let (notes, channel) = (format!("{}.notes", quoted(schema)), channel(schema));
        Self {
            // Clears away what has outlived its lifetime on the same board.
            put: format!(
                "WITH old AS (DELETE FROM {notes} WHERE seat = $1 AND expires <= clock_timestamp() AND (kind, key) <> ($2, $3)), \
                 put AS (INSERT INTO {notes} (seat, kind, key, value, lifetime, expires) \
                 VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $5 * interval '1 microsecond') \
                 ON CONFLICT (seat, kind, key) DO UPDATE \
                 SET value = excluded.value, lifetime = excluded.lifetime, expires = excluded.expires RETURNING 1) \
                 SELECT pg_notify('{channel}', $6) FROM put WHERE $6 IS NOT NULL"
            ),
            list: format!(
                "SELECT key, value, lifetime FROM {notes} \
                 WHERE seat = $1 AND kind = $2 AND expires > clock_timestamp() ORDER BY expires, key"
            ),
            remove: format!("DELETE FROM {notes} WHERE seat = $1 AND kind = $2 AND key = $3"),
        }
    }
}

pub(crate) async fn put(link: &Link, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
    // A century is enough.
    let lifetime = i64::try_from(note.lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000);
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
