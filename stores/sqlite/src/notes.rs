//! Notes, as rows that expire on the machine's clock.

use tenure_core::{Board, Note, NoteState, NoteWrite};

use crate::boot::Boot;
use crate::notifier::About;
use crate::worker::Batch;

/// The seat and the kind of a board, as they are in the table. No seat has an empty name.
fn columns(board: &Board) -> (&str, &str) {
    (board.seat().map_or("", |seat| seat.as_str()), board.kind())
}

/// Puts or removes a note.
pub(crate) fn write(batch: &mut Batch<'_>, note: &NoteWrite) -> rusqlite::Result<NoteState> {
    let ((seat, kind), clock) = (columns(&note.board), &Boot::this().clock);
    let was: bool = batch
        .connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM notes
             WHERE seat = ?1 AND kind = ?2 AND key = ?3 AND clock = ?4 AND put_at + lifetime > ?5)",
        )?
        .query_row((seat, kind, &note.key, clock, batch.now), |row| row.get(0))?;
    match &note.value {
        None => {
            let sql = "DELETE FROM notes WHERE seat = ?1 AND kind = ?2 AND key = ?3";
            batch.connection.prepare_cached(sql)?.execute((seat, kind, &note.key))?;
        }
        Some(value) => {
            if !was {
                clear_away(batch, &note.board)?;
            }
            let lifetime = i64::try_from(note.lifetime.as_nanos()).unwrap_or(i64::MAX / 2);
            batch
                .connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO notes (seat, kind, key, value, clock, put_at, lifetime)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute((seat, kind, &note.key, value, clock, batch.now, lifetime))?;
        }
    }
    if let (Board::Requests(seat), Some(_)) = (&note.board, &note.value) {
        batch.changed(seat, About::Requests, |news| news.request(seat));
    }
    Ok(if was { NoteState::Present } else { NoteState::Absent })
}

/// Removes notes that have expired: those of this seat alone, as looking through all would cost each of thousands of
/// elections a look at the notes of all the others; and all of them when a process begins.
fn clear_away(batch: &Batch<'_>, board: &Board) -> rusqlite::Result<()> {
    let sql = match board {
        Board::Processes => "DELETE FROM notes WHERE seat >= ?1 AND (clock <> ?2 OR put_at + lifetime <= ?3)",
        _ => "DELETE FROM notes WHERE seat = ?1 AND (clock <> ?2 OR put_at + lifetime <= ?3)",
    };
    batch.connection.prepare_cached(sql)?.execute((columns(board).0, &Boot::this().clock, batch.now))?;
    Ok(())
}

/// What was put before a restart of the machine has expired.
pub(crate) fn list(batch: &mut Batch<'_>, board: &Board) -> rusqlite::Result<Vec<Note>> {
    let (seat, kind) = columns(board);
    batch
        .connection
        .prepare_cached(
            "SELECT key, value FROM notes
             WHERE seat = ?1 AND kind = ?2 AND clock = ?3 AND put_at + lifetime > ?4 ORDER BY put_at, key",
        )?
        .query_map((seat, kind, &Boot::this().clock, batch.now), |row| {
            Ok(Note { key: row.get(0)?, value: row.get(1)? })
        })?
        .collect()
}
