//! Notes: rows that expire by the server's clock.
//!
//! Writes of notes do not wait for the disk. If the server crashes and loses a note, its writer writes it again.

use std::sync::Arc;

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, StoreError};
use tenure_kit::sql::notes::{DELETE_AT_MOST, answer_listed, answer_written, micros, seat_of};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Param, PgConnection, numbers, texts};
use crate::schema::{channel, quoted};
use crate::seats::TIMEOUT;

/// The statements, for one schema.
pub(crate) struct Statements {
    write: String,
    list: String,
    delete_expired: String,
}

/// Keeps the commit from waiting for the disk, in this transaction only.
const NO_SYNC: &str = "no_sync AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))";

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        let (notes, channel) = (format!("{}.notes", quoted(schema)), channel(schema));
        Self {
            // All processes insert in the order of the keys, which prevents deadlocks.
            write: format!(
                "WITH {TIMEOUT}, {NO_SYNC}, want AS MATERIALIZED (SELECT seat COLLATE \"C\" AS seat, \
                 kind COLLATE \"C\" AS kind, key COLLATE \"C\" AS key, value, lifetime, number \
                 FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS want (seat, kind, key, value, lifetime, number)), \
                 was AS MATERIALIZED (SELECT want.number FROM timeout, no_sync, want, {notes} AS note \
                 WHERE note.seat = want.seat AND note.kind = want.kind AND note.key = want.key \
                 AND note.expires > clock_timestamp()), \
                 gone AS (DELETE FROM {notes} AS note USING want WHERE want.value IS NULL \
                 AND note.seat = want.seat AND note.kind = want.kind AND note.key = want.key), \
                 put AS (INSERT INTO {notes} (seat, kind, key, value, lifetime, expires) \
                 SELECT seat, kind, key, value, lifetime, clock_timestamp() + lifetime * interval '1 microsecond' \
                 FROM want, timeout WHERE value IS NOT NULL ORDER BY seat, kind, key ON CONFLICT (seat, kind, key) \
                 DO UPDATE SET value = excluded.value, lifetime = excluded.lifetime, expires = excluded.expires \
                 RETURNING seat, kind) \
                 SELECT (SELECT array_agg(number) FROM was), count(sent) FROM (SELECT pg_notify('{channel}', 'r' || seat)::text \
                 AS sent FROM put WHERE kind = 'requests' OFFSET 0) AS notified"
            ),
            list: format!(
                "SELECT want.number, note.key, note.value \
                 FROM unnest($1, $2) WITH ORDINALITY AS want (seat, kind, number), {notes} AS note \
                 WHERE note.seat = want.seat COLLATE \"C\" AND note.kind = want.kind COLLATE \"C\" \
                 AND note.expires > clock_timestamp() ORDER BY want.number, note.expires, note.key"
            ),
            delete_expired: format!(
                "WITH {NO_SYNC}, expired AS MATERIALIZED (SELECT seat, kind, key FROM no_sync, {notes} \
                 WHERE expires <= clock_timestamp() LIMIT {DELETE_AT_MOST} FOR UPDATE OF notes SKIP LOCKED) \
                 DELETE FROM {notes} AS note USING expired \
                 WHERE note.seat = expired.seat AND note.kind = expired.kind AND note.key = expired.key"
            ),
        }
    }
}

/// Writes and removes notes, in one statement.
pub(crate) async fn write(
    connection: &Arc<PgConnection>,
    notes: &[NoteWrite],
    to: &Answers<NoteState>,
) -> Result<(), StoreError> {
    let mut params = columns(notes.iter().map(|note| &note.board));
    params.push(texts(notes.iter().map(|note| note.key.clone()).collect()));
    params.push((Box::new(notes.iter().map(|note| note.value.clone()).collect::<Vec<_>>()), Type::TEXT_ARRAY));
    params.push(numbers(notes.iter().map(|note| micros(note.lifetime)).collect()));
    let statements = &connection.server.notes;
    let rows = connection.query_notes(&statements.write, params).await?;
    let existed: Option<Vec<i64>> = rows.first().and_then(|row| row.get(0));
    let existed: Vec<_> = existed.unwrap_or_default().into_iter().filter_map(|number| number.try_into().ok()).collect();
    if answer_written(notes, &existed, to)
        && let Err(failed) = connection.query_notes(&statements.delete_expired, Vec::new()).await
    {
        let error = StoreError::from(failed);
        tracing::debug!(%error, "cannot delete expired notes; the next process that starts will try again");
    }
    Ok(())
}

/// Lists boards, in one statement.
pub(crate) async fn list(
    connection: &Arc<PgConnection>,
    boards: &[Board],
    to: &Answers<Vec<Note>>,
) -> Result<(), StoreError> {
    let rows = match connection.query_notes(&connection.server.notes.list, columns(boards.iter())).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => Vec::new(),
        rows => rows?,
    };
    let note = |row: &Row| (row.get::<_, i64>(0).try_into().unwrap_or(0), Note { key: row.get(1), value: row.get(2) });
    answer_listed(boards.len(), rows.iter().map(note), to);
    Ok(())
}

/// Returns the seats and the kinds of boards, as columns.
fn columns<'a>(boards: impl Iterator<Item = &'a Board> + Clone) -> Vec<Param> {
    let kinds = boards.clone().map(|board| board.kind().to_owned());
    vec![texts(boards.map(|board| seat_of(board).to_owned()).collect()), texts(kinds.collect())]
}
