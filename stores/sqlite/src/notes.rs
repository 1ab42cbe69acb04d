//! Notes, as rows that expire by the machine's clock.

use tenure_core::{Board, Note, NoteState, NoteWrite};

use crate::boot::Boot;
use crate::notifier::About;
use crate::worker::Transaction;

/// Returns the seat and the kind of a board as they are in the table. A board without a seat has an empty name,
/// which no seat has.
fn columns(board: &Board) -> (&str, &str) {
    (board.seat().map_or("", |seat| seat.as_str()), board.kind())
}

/// Writes or removes a note, and returns whether it existed.
pub(crate) fn write(tx: &mut Transaction<'_>, note: &NoteWrite) -> rusqlite::Result<NoteState> {
    let ((seat, kind), clock) = (columns(&note.board), &Boot::this().clock);
    let was: bool = tx
        .connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM notes
             WHERE seat = ?1 AND kind = ?2 AND key = ?3 AND clock = ?4 AND put_at + lifetime > ?5)",
        )?
        .query_row((seat, kind, &note.key, clock, tx.now), |row| row.get(0))?;
    match &note.value {
        None => {
            let sql = "DELETE FROM notes WHERE seat = ?1 AND kind = ?2 AND key = ?3";
            tx.connection.prepare_cached(sql)?.execute((seat, kind, &note.key))?;
        }
        Some(value) => {
            if !was {
                remove_expired(tx, &note.board)?;
            }
            let lifetime = i64::try_from(note.lifetime.as_nanos()).unwrap_or(i64::MAX / 2);
            tx.connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO notes (seat, kind, key, value, clock, put_at, lifetime)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute((seat, kind, &note.key, value, clock, tx.now, lifetime))?;
        }
    }
    if let (Board::Requests(seat), Some(_)) = (&note.board, &note.value) {
        tx.changed(seat, About::Requests, |news| news.request(seat));
    }
    Ok(if was { NoteState::Present } else { NoteState::Absent })
}

/// Removes expired notes. Normally only those of this seat, because with thousands of elections a scan of all
/// notes would be too expensive. When a process first reports itself, all of them.
fn remove_expired(tx: &Transaction<'_>, board: &Board) -> rusqlite::Result<()> {
    let sql = match board {
        Board::Processes => "DELETE FROM notes WHERE seat >= ?1 AND (clock <> ?2 OR put_at + lifetime <= ?3)",
        _ => "DELETE FROM notes WHERE seat = ?1 AND (clock <> ?2 OR put_at + lifetime <= ?3)",
    };
    tx.connection.prepare_cached(sql)?.execute((columns(board).0, &Boot::this().clock, tx.now))?;
    Ok(())
}

/// Lists the notes of a board. Notes from before a restart of the machine count as expired.
pub(crate) fn list(tx: &mut Transaction<'_>, board: &Board) -> rusqlite::Result<Vec<Note>> {
    let (seat, kind) = columns(board);
    tx.connection
        .prepare_cached(
            "SELECT key, value FROM notes
             WHERE seat = ?1 AND kind = ?2 AND clock = ?3 AND put_at + lifetime > ?4 ORDER BY put_at, key",
        )?
        .query_map((seat, kind, &Boot::this().clock, tx.now), |row| Ok(Note { key: row.get(0)?, value: row.get(1)? }))?
        .collect()
}
