//! The board: notes as rows. Requests have a lifetime on the machine's clock; announcements last while
//! their process attends.

use std::time::Duration;

use tenure_core::{Attended, Note, NoteKind, SeatName};

use crate::bells::Bell;
use crate::boot::Boot;
use crate::worker::Batch;

pub(crate) fn put(batch: &mut Batch<'_>, seat: &SeatName, note: &Note) -> rusqlite::Result<()> {
    let lifetime = i64::try_from(note.lifetime.as_nanos()).unwrap_or(i64::MAX / 2);
    // Of this seat alone, which its key finds: looking through all would cost each of thousands of elections
    // a look at the notes of all the others.
    batch
        .connection
        .prepare_cached("DELETE FROM notes WHERE seat = ?1 AND kind = ?2 AND clock = ?3 AND put_at + lifetime <= ?4")?
        .execute((seat.as_str(), NoteKind::Request.as_str(), &Boot::this().clock, batch.now))?;
    batch
        .connection
        .prepare_cached(
            "INSERT INTO notes (seat, kind, key, value, clock, put_at, lifetime) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (seat, kind, key) DO UPDATE SET
             value = excluded.value, clock = excluded.clock, put_at = excluded.put_at, lifetime = excluded.lifetime",
        )?
        .execute((
            seat.as_str(),
            note.kind.as_str(),
            &note.key,
            &note.value,
            &Boot::this().clock,
            batch.now,
            lifetime,
        ))?;
    if note.kind == NoteKind::Request {
        batch.ring(seat, Bell::Requests);
    }
    Ok(())
}

/// Counts a process as there for a while. Clears away what those have announced who are not.
pub(crate) fn attend(batch: &Batch<'_>, process: &str, lifetime: Duration) -> rusqlite::Result<Attended> {
    let lifetime = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX / 2);
    let clock = &Boot::this().clock;
    let gone = batch
        .connection
        .prepare_cached("DELETE FROM attending WHERE clock <> ?1 OR until <= ?2")?
        .execute((clock, batch.now))?;
    if gone > 0 {
        batch
            .connection
            .prepare_cached("DELETE FROM notes WHERE kind = ?1 AND key NOT IN (SELECT process FROM attending)")?
            .execute([NoteKind::Announcement.as_str()])?;
    }
    let until = batch.now.saturating_add(lifetime);
    let kept = batch
        .connection
        .prepare_cached("UPDATE attending SET until = ?2 WHERE process = ?1")?
        .execute((process, until))?;
    if kept == 1 {
        return Ok(Attended::Still);
    }
    batch
        .connection
        .prepare_cached("INSERT INTO attending (process, clock, until) VALUES (?1, ?2, ?3)")?
        .execute((process, clock, until))?;
    Ok(Attended::Anew)
}

/// What was put before a restart of the machine has outlived it.
pub(crate) fn list(batch: &Batch<'_>, seat: &SeatName, kind: NoteKind) -> rusqlite::Result<Vec<Note>> {
    batch
        .connection
        .prepare_cached(
            "SELECT key, value, lifetime FROM notes
             WHERE seat = ?1 AND kind = ?2 AND clock = ?3 AND CASE kind
                 WHEN 'announcement' THEN EXISTS (
                     SELECT 1 FROM attending WHERE process = key AND attending.clock = ?3 AND until > ?4)
                 ELSE put_at + lifetime > ?4 END
             ORDER BY put_at, key",
        )?
        .query_map((seat.as_str(), kind.as_str(), &Boot::this().clock, batch.now), |row| {
            let lifetime: i64 = row.get(2)?;
            Ok(Note {
                kind,
                key: row.get(0)?,
                value: row.get(1)?,
                lifetime: Duration::from_nanos(lifetime.try_into().unwrap_or_default()),
            })
        })?
        .collect()
}

pub(crate) fn remove(batch: &Batch<'_>, seat: &SeatName, kind: NoteKind, key: &str) -> rusqlite::Result<()> {
    batch.connection.prepare_cached("DELETE FROM notes WHERE seat = ?1 AND kind = ?2 AND key = ?3")?.execute((
        seat.as_str(),
        kind.as_str(),
        key,
    ))?;
    Ok(())
}
