//! Notes, as rows that expire on the server's clock.
//!
//! No write of them waits for the disk: a note that is lost in a crash of the server is put again, or asked for again.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, StoreError};
use tokio_postgres::types::Type;

use crate::connection::{Param, PgConnection, numbers, texts};
use crate::errors::Failed;
use crate::schema::{channel, quoted};
use crate::seats::PATIENT;

/// The statements, for one schema.
pub(crate) struct Statements {
    write: String,
    list: String,
    clear_away: String,
}

/// So many rows are cleared away at once: a process may leave ten thousand behind, and a process that clears them away
/// has elections to keep.
const AT_A_TIME: u32 = 10_000;

const QUICK: &str = "quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))";

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        let (notes, channel) = (format!("{}.notes", quoted(schema)), channel(schema));
        Self {
            // All insert in the order of the keys, so that no two wait for each other.
            write: format!(
                "WITH {PATIENT}, {QUICK}, want AS MATERIALIZED (SELECT seat COLLATE \"C\" AS seat, \
                 kind COLLATE \"C\" AS kind, key COLLATE \"C\" AS key, value, lifetime, number \
                 FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS want (seat, kind, key, value, lifetime, number)), \
                 was AS MATERIALIZED (SELECT want.number FROM patient, quick, want, {notes} AS note \
                 WHERE note.seat = want.seat AND note.kind = want.kind AND note.key = want.key \
                 AND note.expires > clock_timestamp()), \
                 gone AS (DELETE FROM {notes} AS note USING want WHERE want.value IS NULL \
                 AND note.seat = want.seat AND note.kind = want.kind AND note.key = want.key), \
                 put AS (INSERT INTO {notes} (seat, kind, key, value, lifetime, expires) \
                 SELECT seat, kind, key, value, lifetime, clock_timestamp() + lifetime * interval '1 microsecond' \
                 FROM want, patient WHERE value IS NOT NULL ORDER BY seat, kind, key ON CONFLICT (seat, kind, key) \
                 DO UPDATE SET value = excluded.value, lifetime = excluded.lifetime, expires = excluded.expires \
                 RETURNING seat, kind) \
                 SELECT (SELECT array_agg(number) FROM was), count(told) FROM (SELECT pg_notify('{channel}', 'r' || seat)::text \
                 AS told FROM put WHERE kind = 'requests' OFFSET 0) AS told"
            ),
            list: format!(
                "SELECT want.number, note.key, note.value \
                 FROM unnest($1, $2) WITH ORDINALITY AS want (seat, kind, number), {notes} AS note \
                 WHERE note.seat = want.seat COLLATE \"C\" AND note.kind = want.kind COLLATE \"C\" \
                 AND note.expires > clock_timestamp() ORDER BY want.number, note.expires, note.key"
            ),
            clear_away: format!(
                "WITH {QUICK}, late AS MATERIALIZED (SELECT seat, kind, key FROM quick, {notes} \
                 WHERE expires <= clock_timestamp() LIMIT {AT_A_TIME} FOR UPDATE OF notes SKIP LOCKED) \
                 DELETE FROM {notes} AS note USING late \
                 WHERE note.seat = late.seat AND note.kind = late.kind AND note.key = late.key"
            ),
        }
    }
}

/// Puts and removes notes, in one statement.
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
    let rows = connection.ask(&statements.write, params).await.map_err(caused_by_one)?;
    let was: Option<Vec<i64>> = rows.first().and_then(|row| row.get(0));
    let was: Vec<_> = was.unwrap_or_default().into_iter().map(|number| usize::try_from(number).unwrap_or(0)).collect();
    let is_there = |place: usize| was.contains(&(place + 1));
    for place in 0..notes.len() {
        to.set(place, Ok(if is_there(place) { NoteState::Present } else { NoteState::Absent }));
    }
    // A process that begins clears away what those have left that are gone.
    let begins = |(place, note): (usize, &NoteWrite)| note.board == Board::Processes && !is_there(place);
    if notes.iter().enumerate().any(begins)
        && let Err(failed) = connection.ask(&statements.clear_away, Vec::new()).await
    {
        let error = StoreError::from(failed);
        tracing::debug!(%error, "notes that have expired could not be cleared away");
    }
    Ok(())
}

/// Lists boards, in one statement.
pub(crate) async fn list(
    connection: &Arc<PgConnection>,
    boards: &[Board],
    to: &Answers<Vec<Note>>,
) -> Result<(), StoreError> {
    let rows = connection.ask(&connection.server.notes.list, columns(boards.iter())).await.map_err(caused_by_one)?;
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

/// The seats and the kinds of boards. No seat has an empty name.
fn columns<'a>(boards: impl Iterator<Item = &'a Board> + Clone) -> Vec<Param> {
    let seat = |board: &Board| board.seat().map_or("", |seat| seat.as_str()).to_owned();
    let kinds = boards.clone().map(|board| board.kind().to_owned());
    vec![texts(boards.map(seat).collect()), texts(kinds.collect())]
}

/// A statement that failed has done nothing, and maybe because of one note alone.
fn caused_by_one(failed: Failed) -> StoreError {
    let is_caused_by_one = failed.is_caused_by_one();
    let error = StoreError::from(failed);
    if is_caused_by_one { error.caused_by_one() } else { error }
}

/// A lifetime as the database has it. A century is enough.
fn micros(lifetime: Duration) -> i64 {
    i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000)
}
