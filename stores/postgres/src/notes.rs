//! Notes: rows that expire by the server's clock.
//!
//! Writes of notes do not wait for the disk. If the server crashes and loses a note, its writer writes it again.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, StoreError};
use tokio_postgres::types::Type;

use crate::connection::{Param, PgConnection, numbers, texts};
use crate::errors::Failed;
use crate::schema::{channel, quoted};
use crate::seats::TIMEOUT;

/// The statements, for one schema.
pub(crate) struct Statements {
    write: String,
    list: String,
    delete_expired: String,
}

/// One statement deletes at most this many rows. A dead process may leave ten thousand rows, and the process that
/// deletes them must not be kept from renewing its own seats.
const DELETE_AT_MOST: u32 = 10_000;

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
    let rows = connection.query(&statements.write, params).await.map_err(caused_by_one)?;
    let was: Option<Vec<i64>> = rows.first().and_then(|row| row.get(0));
    let was: Vec<_> = was.unwrap_or_default().into_iter().map(|number| usize::try_from(number).unwrap_or(0)).collect();
    let existed = |place: usize| was.contains(&(place + 1));
    for place in 0..notes.len() {
        to.set(place, Ok(if existed(place) { NoteState::Present } else { NoteState::Absent }));
    }
    // A process that announces itself for the first time deletes what dead processes left.
    let is_first = |(place, note): (usize, &NoteWrite)| note.board == Board::Processes && !existed(place);
    if notes.iter().enumerate().any(is_first)
        && let Err(failed) = connection.query(&statements.delete_expired, Vec::new()).await
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
    let rows = match connection.query(&connection.server.notes.list, columns(boards.iter())).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => Vec::new(),
        rows => rows.map_err(caused_by_one)?,
    };
    let mut listed: Vec<Vec<Note>> = boards.iter().map(|_| Vec::new()).collect();
    for row in rows {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        if let Some(notes) = listed.get_mut(place) {
            notes.push(Note { key: row.get(1), value: row.get(2) });
        }
    }
    listed.into_iter().enumerate().for_each(|(place, notes)| to.set(place, Ok(notes)));
    Ok(())
}

/// Returns the seats and the kinds of boards, as columns. A board without a seat has the empty name, which no
/// seat has.
fn columns<'a>(boards: impl Iterator<Item = &'a Board> + Clone) -> Vec<Param> {
    let seat = |board: &Board| board.seat().map_or("", |seat| seat.as_str()).to_owned();
    let kinds = boards.clone().map(|board| board.kind().to_owned());
    vec![texts(boards.map(seat).collect()), texts(kinds.collect())]
}

/// Converts the error of a statement, and marks it if a single note may be the cause.
fn caused_by_one(failed: Failed) -> StoreError {
    let is_caused_by_one = failed.is_caused_by_one();
    let error = StoreError::from(failed);
    if is_caused_by_one { error.caused_by_one() } else { error }
}

/// Returns a lifetime in microseconds, at most a century: a longer one could overflow the timestamp.
fn micros(lifetime: Duration) -> i64 {
    i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000)
}
