//! Seats as rows: read, swapped on condition, kept by a heartbeat.
//!
//! # Correctness argument
//!
//! *One write at a time.* Every write is made in a `BEGIN IMMEDIATE` transaction: SQLite lets one
//! process at a time into such a transaction on a file, so what was read in it is still so when it
//! commits.
//!
//! *A seat's version* is the nonce of its record together with the count of its holder's heartbeats.
//! A swap is refused unless both are as expected. So a bidder that has judged the seat lapsed, or its
//! holder gone, loses if the holder has renewed since; and no two writes have the same version, as
//! nonces are random and new in each. For a seat that our own session holds, the nonce alone decides:
//! only we count its heartbeats, and only a swap can change its nonce.
//!
//! *One heartbeat renews all seats* of a process. It is counted in the row of its session, in the same
//! transaction in which the seat was seen to be held by that session still. Its time is taken before
//! the commit, and the leader counts its hold from no later than that.
//!
//! *Time* is `CLOCK_BOOTTIME` of the machine, the same clock for all of its processes, which does not
//! step. What was timed by another one, after a restart or in another namespace, is only observed.

use rusqlite::OptionalExtension;
use rusqlite::types::Type;
use tenure_core::{Life, Reading, Record, Seat, SeatName, Swap, Token, Version, record};

use crate::bells::Bell;
use crate::boot::{self, Boot};
use crate::worker::Batch;

/// A seat as it stands in the database.
struct Row {
    record: String,
    nonce: String,
    session: Option<String>,
    /// Of the session: its heartbeats, when the last was, by which clock, under which kernel.
    beats: Option<i64>,
    beat_at: Option<i64>,
    clock: Option<String>,
    kernel: Option<String>,
}

impl Row {
    fn version(&self) -> Version {
        version(&self.nonce, self.beats)
    }
}

fn version(nonce: &str, beats: Option<i64>) -> Version {
    match beats {
        None => Version::new(nonce),
        Some(beats) => Version::new(format!("{nonce}.{beats}")),
    }
}

/// Whether a version of a seat that our own session holds is of the write that still stands: it may
/// have been told some heartbeats ago.
fn is_of_write(version: &Version, nonce: &str, beats: Option<i64>) -> bool {
    let told = version.as_str().split_once('.').map(|(nonce, told)| (nonce, told.parse().ok()));
    told.is_some_and(|(of, told)| of == nonce && told.is_some() && told <= beats)
}

fn row(batch: &Batch<'_>, seat: &SeatName) -> rusqlite::Result<Option<Row>> {
    batch
        .connection
        .prepare_cached(
            "SELECT record, nonce, session, beats, beat_at, clock, kernel
             FROM seats LEFT JOIN sessions ON sessions.id = seats.session WHERE name = ?1",
        )?
        .query_row([seat.as_str()], |row| {
            Ok(Row {
                record: row.get(0)?,
                nonce: row.get(1)?,
                session: row.get(2)?,
                beats: row.get(3)?,
                beat_at: row.get(4)?,
                clock: row.get(5)?,
                kernel: row.get(6)?,
            })
        })
        .optional()
}

pub(crate) fn read(batch: &Batch<'_>, seat: &SeatName) -> rusqlite::Result<Reading> {
    let floor: Option<i64> = batch
        .connection
        .prepare_cached("SELECT token FROM floors WHERE name = ?1")?
        .query_row([seat.as_str()], |row| row.get(0))
        .optional()?;
    let seat = match row(batch, seat)? {
        None => None,
        Some(row) => {
            let record = record::from_json(&row.record)
                .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into()))?;
            Some(Seat { record, version: row.version(), life: life(batch, &row) })
        }
    };
    let floor = Token::new(floor.and_then(|token| token.try_into().ok()).unwrap_or_default());
    Ok(Reading { seat, floor: floor.max(batch.floor), identity: Some(batch.identity.clone()) })
}

/// What can be said of the holder. The lock is tried after the row was read: if it is free, the one
/// who wrote the row is gone, and cannot have written since.
fn life(batch: &Batch<'_>, row: &Row) -> Life {
    let this = Boot::this();
    let Some(session) = &row.session else { return Life::Observe };
    if row.kernel.as_ref() == Some(&this.kernel) && batch.liveness.is_gone(session) {
        return Life::Over;
    }
    match (row.beat_at, &row.clock) {
        (Some(renewed), Some(clock)) if *clock == this.clock => {
            Life::Clock { now: boot::store_time(boot::now()), renewed: boot::store_time(renewed) }
        }
        _ => Life::Observe,
    }
}

pub(crate) fn swap(
    batch: &mut Batch<'_>,
    seat: &SeatName,
    expected: Option<&Version>,
    next: &Record,
    session: Option<&str>,
) -> rusqlite::Result<Swap> {
    let current = row(batch, seat)?;
    let as_expected = match (&current, expected) {
        (None, None) => true,
        (Some(row), Some(expected)) if row.session.as_ref().is_some_and(|session| batch.liveness.is_own(session)) => {
            is_of_write(expected, &row.nonce, row.beats)
        }
        (Some(row), Some(expected)) => row.version() == *expected,
        _ => false,
    };
    if !as_expected {
        return Ok(Swap::Lost);
    }
    if let Some(session) = session {
        batch.beat(session)?;
        batch.holds(next.lease);
    }
    let next_nonce = format!("{:016x}", next.nonce);
    batch
        .connection
        .prepare_cached(
            "INSERT INTO seats (name, record, nonce, session) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET record = excluded.record, nonce = excluded.nonce, session = excluded.session",
        )?
        .execute((seat.as_str(), record::to_json(next), &next_nonce, session))?;
    batch
        .connection
        .prepare_cached(
            "INSERT INTO floors (name, token) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)",
        )?
        .execute((seat.as_str(), i64::try_from(next.token.get()).unwrap_or(i64::MAX)))?;
    batch.ring(seat, Bell::Holder);
    let beats = beats(batch, session)?;
    Ok(Swap::Done { version: version(&next_nonce, beats), since: session.and(batch.beat), granted: None })
}

/// Keeps a seat by the heartbeat that all share; a new one only if the last is getting old.
pub(crate) fn keep(
    batch: &mut Batch<'_>,
    seat: &SeatName,
    held: &Version,
    record: &Record,
    session: &str,
) -> rusqlite::Result<Swap> {
    // One statement, as thousands of these may be due at once.
    let (current, counted): (String, Option<i64>) = match batch
        .connection
        .prepare_cached(
            "SELECT nonce, beats FROM seats LEFT JOIN sessions ON sessions.id = seats.session
             WHERE name = ?1 AND session = ?2",
        )?
        .query_row([seat.as_str(), session], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
    {
        Some(found) => found,
        None => return Ok(Swap::Lost),
    };
    if !is_of_write(held, &current, counted) {
        return Ok(Swap::Lost);
    }
    batch.holds(record.lease);
    let beats = if batch.beat.is_none_or(|beat| batch.moment.since(beat) >= record.lease / 4) {
        batch.beat(session)?;
        beats(batch, Some(session))?
    } else {
        counted
    };
    Ok(Swap::Done { version: version(&current, beats), since: batch.beat, granted: None })
}

fn beats(batch: &Batch<'_>, session: Option<&str>) -> rusqlite::Result<Option<i64>> {
    let Some(session) = session else { return Ok(None) };
    let mut statement = batch.connection.prepare_cached("SELECT beats FROM sessions WHERE id = ?1")?;
    statement.query_row([session], |row| row.get(0)).optional()
}

/// Removes a seat and its board. Its floor stays.
pub(crate) fn forget(batch: &mut Batch<'_>, seat: &SeatName) -> rusqlite::Result<()> {
    batch.connection.execute("DELETE FROM seats WHERE name = ?1", [seat.as_str()])?;
    batch.connection.execute("DELETE FROM notes WHERE seat = ?1", [seat.as_str()])?;
    batch.ring(seat, Bell::Holder);
    Ok(())
}

/// The session that holds a seat, if it is held.
pub(crate) fn holder(batch: &Batch<'_>, seat: &SeatName) -> rusqlite::Result<Option<String>> {
    Ok(row(batch, seat)?.and_then(|row| row.session))
}
