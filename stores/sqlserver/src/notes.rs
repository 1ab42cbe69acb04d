//! Notes: rows that expire by the server's clock.

use std::sync::Arc;

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, StoreError};
use tenure_kit::sql::notes::{answer_listed, answer_written};
use tenure_kit::sql::{BatchError, want};

use crate::connection::{Batch, SqlConnection, name, number, text};
use crate::seats::HEAD;

/// The notes or boards of the batch, from the JSON in `@P1` (`tenure_kit::sql::want`).
const WANT: &str = "DECLARE @want TABLE (place int NOT NULL PRIMARY KEY, seat varbinary(512) NOT NULL, \
     kind varchar(16) COLLATE Latin1_General_BIN2 NOT NULL, note_key varbinary(1024), value nvarchar(max), \
     lifetime bigint);\n\
     INSERT INTO @want SELECT place, CONVERT(varbinary(512), seat, 2), kind, CONVERT(varbinary(1024), note_key, 2), \
     value, lifetime FROM OPENJSON(@P1) WITH (place int, seat varchar(1024), kind varchar(16), \
     note_key varchar(2048) '$.key', value nvarchar(max), lifetime bigint);\n";

/// The rows of the notes.
const NOTES: &str = "{notes} AS note JOIN @want AS want ON note.seat = want.seat AND note.kind = want.kind";

/// The row of each note.
const NOTE: &str = "AND note.note_key = want.note_key";

/// Deletes some expired notes. The server would lock the whole table for 5,000 of them.
const DELETE_EXPIRED: &str = "DELETE TOP (2000) FROM {notes} WHERE expires <= @now;";

/// Writes and removes notes, in one batch. Each statement is a transaction of its own: if the batch fails half-way, the
/// engine writes all of its notes again. A note that another process inserts at the same time stays as it is.
pub(crate) async fn write(
    connection: &Arc<SqlConnection>,
    notes: &[NoteWrite],
    to: &Answers<NoteState>,
) -> Result<(), StoreError> {
    let sql = format!(
        "/* tenure: put notes */ {HEAD}{WANT}SELECT want.place FROM {NOTES} {NOTE} WHERE note.expires > @now;\n\
         DELETE note FROM {NOTES} {NOTE} WHERE want.value IS NULL;\n\
         UPDATE note SET value = want.value, expires = @now + want.lifetime FROM {NOTES} {NOTE} \
         WHERE want.value IS NOT NULL;\n\
         INSERT INTO {{notes}} (seat, kind, note_key, value, expires) \
         SELECT want.seat, want.kind, want.note_key, want.value, @now + want.lifetime FROM @want AS want \
         WHERE want.value IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {{notes}} AS note WHERE note.seat = want.seat \
         AND note.kind = want.kind {NOTE});"
    );
    let want = want::notes(notes).to_string();
    let results = connection.run(Batch { sql: connection.server.sql(&sql), want, ..Batch::default() }).await?;
    let existed: Vec<usize> = results.iter().flatten().filter_map(|row| number(row, 0)?.try_into().ok()).collect();
    let delete = connection.server.sql(&format!("/* tenure: delete expired */ {HEAD}{DELETE_EXPIRED}"));
    if answer_written(notes, &existed, to)
        && let Err(failed) = connection.run(Batch { sql: delete, ..Batch::default() }).await
    {
        let error = StoreError::from(failed);
        tracing::debug!(%error, "cannot delete expired notes; the next process that starts will try again");
    }
    Ok(())
}

/// Lists boards, in one batch.
pub(crate) async fn list(
    connection: &Arc<SqlConnection>,
    boards: &[Board],
    to: &Answers<Vec<Note>>,
) -> Result<(), StoreError> {
    let sql = format!(
        "/* tenure: list notes */ {HEAD}{WANT}SELECT want.place, note.note_key, note.value FROM {NOTES} \
         WHERE note.expires > @now ORDER BY want.place, note.expires, note.note_key;"
    );
    let want = want::boards(boards).to_string();
    let results = match connection.run(Batch { sql: connection.server.sql(&sql), want, ..Batch::default() }).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => Vec::new(),
        results => results?,
    };
    let note = |row| {
        let place = number(row, 0).and_then(|place| place.try_into().ok()).unwrap_or(0);
        (place, Note { key: name(row, 1).unwrap_or_default(), value: text(row, 2).unwrap_or_default() })
    };
    answer_listed(boards.len(), results.iter().flatten().map(note), to);
    Ok(())
}
