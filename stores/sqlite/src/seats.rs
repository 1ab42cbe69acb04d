//! Seats as rows: reads, conditional writes, and renewals by heartbeat.
//!
//! # Correctness argument
//!
//! *One write at a time.* Every write is part of a `BEGIN IMMEDIATE` transaction. SQLite lets one process at a
//! time into such a transaction on a file, so what the transaction has read is still true when it commits.
//!
//! *The version of a seat* consists of the nonce of its record, the count of its holder's heartbeats, and the
//! session that holds it. A write is refused unless all three are as expected. So a bidder that has judged the
//! seat lapsed loses if the holder has renewed since. No two writes have the same version, because nonces are random
//! and new in each write. In two cases the count of heartbeats does not matter. If our own session holds the seat, only
//! this process counts them. If the process of the session is gone, none follows: the transaction looks at the lock
//! itself, so a bidder may have read the seat before the last heartbeats.
//!
//! *A renewal* finds the seat held by our own session, with the nonce of the write that won it. So the seat
//! still names the same holder and term, because both were written together with that nonce.
//!
//! *One heartbeat renews all seats* of a process. It is counted in the row of its session: either in the
//! transaction that saw that this session still holds the seat, or in an earlier one. It is never older than
//! the bid that won the seat, because every bid makes a heartbeat. The time of a heartbeat is taken before the
//! commit, and the leader counts its hold from no later than that time.
//!
//! *Tokens only rise.* Every write raises the floor of its seat to its token in the same transaction, and nothing
//! lowers it. A seat that does not exist is written only if the token is above the floor. So a bid that was sent
//! before a removal, and arrives after it, is lost if a removed term had its token or a higher one. A term is written
//! only if its token is above the floor of the database as well, which is raised when files were lost. So the same
//! holds for a bid on a seat that was read before a loss. That version may be back in place, and a candidate that
//! learns of the end of its holder does not read it again.
//!
//! *Time* is `CLOCK_BOOTTIME` of the machine. It is the same clock for all of its processes, and it does not
//! step. A time that was taken on another clock (before a restart, or in another time namespace) is ignored,
//! and the seat is only observed.

use std::time::Duration;

use rusqlite::OptionalExtension;
use rusqlite::types::Type;
use tenure_core::{
    Expect, Life, PushDetail, Reading, Record, Seat, SeatName, SessionId, Swap, Token, Version, Write, record,
};

use crate::boot::{self, Boot};
use crate::notifier::About;
use crate::worker::Transaction;

/// The row of a seat, joined with the row of its session.
struct Row {
    record: String,
    nonce: String,
    session: Option<String>,
    /// Of the session: the number of its heartbeats, the time of the last one, its clock and its kernel.
    beats: Option<i64>,
    beat_at: Option<i64>,
    clock: Option<String>,
    kernel: Option<String>,
}

impl Row {
    fn version(&self) -> Version {
        version(&self.nonce, self.beats, self.local_session())
    }

    /// Returns the session that holds the seat, if its lock belongs to this kernel. The end of any other
    /// session goes unnoticed.
    fn local_session(&self) -> Option<&str> {
        self.session.as_deref().filter(|_| self.kernel.as_ref() == Some(&Boot::this().kernel))
    }

    /// Returns whether `version`, of a seat that a session holds, belongs to the write that is still in place. The
    /// version may be some heartbeats old.
    fn is_still(&self, version: &Version) -> bool {
        let mut parts = version.as_str().splitn(3, '.');
        let (nonce, beats, session) = (parts.next(), parts.next().and_then(|beats| beats.parse().ok()), parts.next());
        nonce == Some(&self.nonce) && beats.is_some() && beats <= self.beats && session == self.local_session()
    }
}

fn version(nonce: &str, beats: Option<i64>, session: Option<&str>) -> Version {
    match (beats, session) {
        (None, _) => Version::new(nonce),
        (Some(beats), None) => Version::new(format!("{nonce}.{beats}")),
        (Some(beats), Some(session)) => Version::new(format!("{nonce}.{beats}.{session}")),
    }
}

/// Returns the session that is part of a version.
pub(crate) fn session_of(version: &Version) -> Option<SessionId> {
    version.as_str().split('.').nth(2).map(SessionId::new)
}

/// Returns the names of all seats. A name that no election can have is left out.
pub(crate) fn names(tx: &Transaction<'_>) -> rusqlite::Result<Vec<SeatName>> {
    let mut names = tx.connection.prepare_cached("SELECT name FROM seats")?;
    let names = names.query_map([], |row| Ok(SeatName::new(row.get_ref(0)?.as_str().unwrap_or_default()).ok()))?;
    names.filter_map(Result::transpose).collect()
}

fn row(tx: &Transaction<'_>, seat: &SeatName) -> rusqlite::Result<Option<Row>> {
    tx.connection
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

/// Returns the floor of a seat's tokens, which stays when the seat is removed; `None` if the seat was never written.
fn floor(tx: &Transaction<'_>, seat: &SeatName) -> rusqlite::Result<Option<Token>> {
    let mut floor = tx.connection.prepare_cached("SELECT token FROM floors WHERE name = ?1")?;
    let token: Option<i64> = floor.query_row([seat.as_str()], |row| row.get(0)).optional()?;
    Ok(token.map(|token| Token::new(token.try_into().unwrap_or_default())))
}

pub(crate) fn read(tx: &Transaction<'_>, seat: &SeatName) -> rusqlite::Result<Reading> {
    let floor = floor(tx, seat)?.unwrap_or(Token::ZERO);
    let seat = match row(tx, seat)? {
        None => None,
        Some(row) => {
            let record = record::from_json(&row.record)
                .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into()))?;
            Some(Seat { record, version: row.version(), life: life(tx, &row) })
        }
    };
    Ok(Reading { seat, floor: floor.max(tx.database.floor), identity: Some(tx.database.identity.clone()) })
}

/// Returns what is known about the holder. The lock is tried after the row was read: if the lock is free, the
/// process that wrote the row is gone, and cannot have written since.
fn life(tx: &Transaction<'_>, row: &Row) -> Life {
    if row.local_session().is_some_and(|session| tx.context.process_locks.is_gone(session)) {
        return Life::Over;
    }
    match (row.beat_at, &row.clock) {
        (Some(renewed), Some(clock)) if *clock == Boot::this().clock => {
            Life::Clock { now: boot::store_time(boot::now()), renewed: boot::store_time(renewed) }
        }
        _ => Life::Observe,
    }
}

pub(crate) fn write(tx: &mut Transaction<'_>, Write { seat, expect, record }: &Write) -> rusqlite::Result<Swap> {
    let row = row(tx, seat)?;
    let own = tx.context.process_locks.own();
    let is_own = |row: &Row| own.is_some() && row.session.as_deref() == own;
    let is_gone = |row: &Row| row.local_session().is_some_and(|session| tx.context.process_locks.is_gone(session));
    let is_as_expected = match (&row, expect) {
        (None, Expect::Absent(_)) => {
            let is_new = floor(tx, seat)?.is_none_or(|floor| record.token > floor);
            is_new && !expect.is_absent_elsewhere(tx.database.identity.as_str())
        }
        (Some(row), Expect::Version(version)) if !is_own(row) => {
            row.version() == *version || row.is_still(version) && is_gone(row)
        }
        // The lock of a dead process is free, unless a process that it has started keeps it for its own work.
        (Some(row), Expect::HolderDead(version)) => is_gone(row) && row.version() == *version,
        (Some(row), Expect::Version(version) | Expect::Held(version)) => is_own(row) && row.is_still(version),
        _ => false,
    };
    if !is_as_expected || !record.is_vacant() && record.token <= tx.database.floor {
        return Ok(Swap::Lost);
    }
    let (session, is_renewal) = (own.filter(|_| !record.is_vacant()), matches!(expect, Expect::Held(_)));
    if let Some(session) = session {
        // A renewal makes a new heartbeat only if the last one is getting old.
        tx.beat(session, record.lease, if is_renewal { record.lease / 4 } else { Duration::ZERO })?;
    }
    if !is_renewal {
        put(tx, seat, record, session)?;
    }
    let nonce = row.filter(|_| is_renewal).map_or_else(|| nonce_of(record), |row| row.nonce);
    let (beats, since) = (session.map(|_| tx.heartbeat.beats), session.and(tx.heartbeat.last));
    Ok(Swap::Done { version: version(&nonce, beats, session), since, granted: None })
}

fn put(tx: &mut Transaction<'_>, seat: &SeatName, next: &Record, session: Option<&str>) -> rusqlite::Result<()> {
    tx
        .connection
        .prepare_cached(
            "INSERT INTO seats (name, record, nonce, session) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET record = excluded.record, nonce = excluded.nonce, session = excluded.session",
        )?
        .execute((seat.as_str(), record::to_json(next), nonce_of(next), session))?;
    tx.connection
        .prepare_cached(
            "INSERT INTO floors (name, token) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)",
        )?
        .execute((seat.as_str(), i64::try_from(next.token.get()).unwrap_or(i64::MAX)))?;
    let about = if next.is_vacant() { About::Holder } else { About::Won };
    tx.changed(seat, about, |news| news.holder(seat, PushDetail::Nonce(next.nonce)));
    Ok(())
}

fn nonce_of(record: &Record) -> String {
    format!("{:016x}", record.nonce)
}

/// Removes a seat and its notes, but keeps its token floor.
pub(crate) fn forget(tx: &mut Transaction<'_>, seat: &SeatName) -> rusqlite::Result<()> {
    tx.connection.execute("DELETE FROM seats WHERE name = ?1", [seat.as_str()])?;
    tx.connection.execute("DELETE FROM notes WHERE seat = ?1", [seat.as_str()])?;
    tx.changed(seat, About::Holder, |news| news.holder(seat, PushDetail::Names(None)));
    Ok(())
}
