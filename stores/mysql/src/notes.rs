//! Notes: rows that expire by the server's clock.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, StoreError};

use crate::connection::MyConnection;
use crate::errors::Failed;
use crate::seats::{batch, hex};

/// A note or a board of a call, in the form that the statements expect.
#[derive(Serialize)]
struct Want<'a> {
    /// A board without a seat has the empty name, which no seat has.
    n: String,
    k: &'static str,
    o: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<&'a str>,
    t: i64,
}

impl<'a> Want<'a> {
    fn new(board: &Board, key: &str, value: Option<&'a str>, lifetime: Duration) -> Self {
        let seat = board.seat().map_or("", |seat| seat.as_str());
        // At most a century: a longer lifetime could overflow the sum.
        let t = i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000);
        Self { n: hex(seat.as_bytes()), k: board.kind(), o: hex(key.as_bytes()), r: value, t }
    }
}

/// Writes and removes notes, in one batch. Each statement is a transaction of its own: if the batch fails half-way, the
/// engine writes all of its notes again.
pub(crate) async fn write(
    connection: &Arc<MyConnection>,
    notes: &[NoteWrite],
    to: &Answers<NoteState>,
) -> Result<(), StoreError> {
    let wants: Vec<_> =
        notes.iter().map(|note| Want::new(&note.board, &note.key, note.value.as_deref(), note.lifetime)).collect();
    let sql = &connection.server.sql;
    let results = connection.run(batch(&wants, &sql.write_notes)).await.map_err(caused_by_one)?;
    let existed: Vec<usize> =
        results.into_iter().nth(1).unwrap_or_default().into_iter().map(mysql_async::from_row).collect();
    let existed = |place: usize| existed.contains(&(place + 1));
    for place in 0..notes.len() {
        to.set(place, Ok(if existed(place) { NoteState::Present } else { NoteState::Absent }));
    }
    // A process that announces itself for the first time deletes what dead processes left.
    let is_first = |(place, note): (usize, &NoteWrite)| note.board == Board::Processes && !existed(place);
    if notes.iter().enumerate().any(is_first)
        && let Err(failed) = connection.run(sql.delete_expired_notes.clone()).await
    {
        let error = StoreError::from(failed);
        tracing::debug!(%error, "cannot delete expired notes; the next process that starts will try again");
    }
    Ok(())
}

/// Lists boards, in one statement.
pub(crate) async fn list(
    connection: &Arc<MyConnection>,
    boards: &[Board],
    to: &Answers<Vec<Note>>,
) -> Result<(), StoreError> {
    let wants: Vec<_> = boards.iter().map(|board| Want::new(board, "", None, Duration::ZERO)).collect();
    let results = match connection.run(batch(&wants, &connection.server.sql.list_notes)).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => Vec::new(),
        results => results.map_err(caused_by_one)?,
    };
    let mut listed: Vec<Vec<Note>> = boards.iter().map(|_| Vec::new()).collect();
    for row in results.into_iter().nth(1).unwrap_or_default() {
        let (number, key, value): (usize, Vec<u8>, String) = mysql_async::from_row(row);
        if let Some(notes) = listed.get_mut(number.wrapping_sub(1)) {
            notes.push(Note { key: String::from_utf8_lossy(&key).into_owned(), value });
        }
    }
    listed.into_iter().enumerate().for_each(|(place, notes)| to.set(place, Ok(notes)));
    Ok(())
}

/// Converts the error of a batch, and marks it if a single note may be the cause.
fn caused_by_one(failed: Failed) -> StoreError {
    let is_caused_by_one = failed.is_caused_by_one(usize::MAX);
    let error = StoreError::from(failed);
    if is_caused_by_one { error.caused_by_one() } else { error }
}
