//! Notes: rows that expire by the server's clock.

use std::sync::Arc;

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, StoreError};
use tenure_kit::sql::BatchError;
use tenure_kit::sql::notes::{DELETE_AT_MOST, answer_listed, answer_written};
use tenure_kit::sql::want;

use crate::connection::MyConnection;
use crate::seats::about;

/// The notes or boards of a call, from the JSON in `@tenure_want`. Names are hexadecimal digits.
const WANT: &str = "JSON_TABLE(@tenure_want, '$[*]' COLUMNS (place FOR ORDINALITY, seat VARCHAR(1024) PATH '$.seat', \
     kind VARCHAR(16) PATH '$.kind', note_key VARCHAR(2048) PATH '$.key', \
     value LONGTEXT CHARACTER SET utf8mb4 PATH '$.value', lifetime BIGINT PATH '$.lifetime')) AS want";

/// The rows of the boards.
const NOTES: &str = "STRAIGHT_JOIN {notes} AS note FORCE INDEX (PRIMARY) \
     ON note.seat = UNHEX(want.seat) AND note.kind = want.kind";

/// Writes and removes notes, in one batch. Each statement is a transaction of its own: if the batch fails half-way, the
/// engine writes all of its notes again.
pub(crate) async fn write(
    connection: &Arc<MyConnection>,
    notes: &[NoteWrite],
    to: &Answers<NoteState>,
) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT want.place FROM {WANT} {NOTES} AND note.note_key = UNHEX(want.note_key) WHERE note.expires > {{now}}; \
         DELETE note FROM {WANT} {NOTES} AND note.note_key = UNHEX(want.note_key) WHERE want.value IS NULL; \
         INSERT INTO {{notes}} (seat, kind, note_key, value, expires) \
         SELECT UNHEX(want.seat), want.kind, UNHEX(want.note_key), want.value, {{now}} + want.lifetime FROM {WANT} \
         WHERE want.value IS NOT NULL ORDER BY want.seat, want.kind, want.note_key \
         ON DUPLICATE KEY UPDATE value = want.value, expires = {{now}} + want.lifetime"
    );
    let results = connection.run(about(&want::notes(notes), &connection.server.sql(&sql))).await?;
    let existed: Vec<usize> =
        results.into_iter().nth(1).unwrap_or_default().into_iter().map(mysql_async::from_row).collect();
    let delete = format!("DELETE FROM {{notes}} WHERE expires <= {{now}} LIMIT {DELETE_AT_MOST}");
    if answer_written(notes, &existed, to)
        && let Err(failed) = connection.run(connection.server.sql(&delete)).await
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
    let sql = format!(
        "SELECT want.place, note.note_key, note.value FROM {WANT} {NOTES} WHERE note.expires > {{now}} \
         ORDER BY want.place, note.expires, note.note_key"
    );
    let results = match connection.run(about(&want::boards(boards), &connection.server.sql(&sql))).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => Vec::new(),
        results => results?,
    };
    let note = |row| {
        let (number, key, value): (usize, Vec<u8>, String) = mysql_async::from_row(row);
        (number, Note { key: String::from_utf8_lossy(&key).into_owned(), value })
    };
    answer_listed(boards.len(), results.into_iter().nth(1).unwrap_or_default().into_iter().map(note), to);
    Ok(())
}
