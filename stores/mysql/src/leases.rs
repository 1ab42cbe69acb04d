//! `mode=lease`: leaders renew rows, whose age is measured by the server's clock. Also has the parts of reading and
//! writing that both modes share.

use std::sync::Arc;

use mysql_async::Row;
use tenure_core::{
    Answers, DataIdentity, Expect, Life, Reading, Record, Seat, SeatName, StoreError, StoreTime, Swap, Token, Write,
    record,
};

use crate::connection::{MyConnection, Results};
use crate::errors::{self, Failed};
use crate::schema::LockNames;
use crate::seats::{VersionParts, WRITES_AT, Want, batch, clock_floor, hex};

/// A row of a reading.
pub(crate) struct SeatRow {
    record: String,
    version: String,
    pub(crate) session: Option<String>,
    /// Whether that session lives.
    pub(crate) is_alive: bool,
    written: i64,
    now: i64,
}

/// Reads seats in one statement.
pub(crate) async fn read(
    connection: &Arc<MyConnection>,
    seats: &[SeatName],
    to: &Answers<Reading>,
) -> Result<(), StoreError> {
    let life = |row: &SeatRow, _: &SeatName, record: &Record| match row.session {
        Some(_) if !record.is_vacant() => Err(other_mode("session", "lease")),
        _ => Ok(Life::Clock { now: store_time(row.now), renewed: store_time(row.written) }),
    };
    read_by(connection, seats, to, life).await
}

/// Reads seats in either mode. `life` returns whether the holder of a row is alive.
pub(crate) async fn read_by(
    connection: &Arc<MyConnection>,
    seats: &[SeatName],
    to: &Answers<Reading>,
    life: impl Fn(&SeatRow, &SeatName, &Record) -> Result<Life, StoreError>,
) -> Result<(), StoreError> {
    let want: Vec<_> = seats.iter().map(Want::read).collect();
    let results = match connection.run(batch(&want, &connection.server.sql.read)).await {
        Ok(results) => results,
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => {
            let nothing = || Reading { seat: None, floor: Token::ZERO, identity: None };
            (0..seats.len()).for_each(|place| to.set(place, Ok(nothing())));
            return Ok(());
        }
        Err(failed) => return Err(failed.into()),
    };
    for row in results.into_iter().nth(1).unwrap_or_default() {
        let place = row.get::<usize, _>(0).unwrap_or(0).wrapping_sub(1);
        let Some(seat) = seats.get(place) else { continue };
        let answer = reading(connection, &row, |row, record| life(row, seat, record));
        to.set(place, answer);
    }
    Ok(())
}

fn reading(
    connection: &MyConnection,
    row: &Row,
    life: impl FnOnce(&SeatRow, &Record) -> Result<Life, StoreError>,
) -> Result<Reading, StoreError> {
    let text = |column: usize| row.get::<Option<String>, _>(column).flatten();
    let identity = text(5).filter(|identity| !identity.is_empty()).ok_or_else(|| {
        connection.close();
        errors::answered_by_replica()
    })?;
    let now = row.get(7).unwrap_or(0);
    let seat = match text(1) {
        None => None,
        Some(json) => {
            let (version, session) = (text(2).unwrap_or_default(), text(3));
            let written = row.get::<Option<i64>, _>(6).flatten().unwrap_or(0);
            let is_alive = row.get(8).unwrap_or(false);
            let row = SeatRow { record: json, version, session, is_alive, written, now };
            let record = record::from_json(&row.record)?;
            let life = life(&row, &record)?;
            let parts = VersionParts { number: row.version, identity: identity.clone(), session: row.session };
            Some(Seat { record, version: parts.version(), life })
        }
    };
    let floor = Token::new(row.get::<u64, _>(4).unwrap_or(0)).max(clock_floor(now));
    Ok(Reading { seat, floor, identity: Some(DataIdentity::new(identity)) })
}

/// Describes a seat that is held in the other mode, where this mode cannot tell whether the leader is alive.
pub(crate) fn other_mode(theirs: &str, ours: &str) -> StoreError {
    StoreError::denied(format!(
        "the seat is held in mode={theirs}, but this program uses mode={ours}; use the same mode in all candidates"
    ))
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(micros) * 1000)
}

/// Writes seats: inserts, updates and renewals each share a batch. Each is a transaction of its own, so that the failure
/// of one does not affect the others.
pub(crate) async fn write(
    connection: &Arc<MyConnection>,
    writes: &[Write],
    to: &Answers<Swap>,
) -> Result<(), StoreError> {
    let [mut new, mut next, mut renewals] = [WriteSet::default(), WriteSet::default(), WriteSet::default()];
    for (place, write) in writes.iter().enumerate() {
        match (&write.expect, VersionParts::of(&write.expect)) {
            (Expect::Absent(_), _) => new.push(place, write),
            (Expect::Version(_) | Expect::HolderDead(_), Some(_)) => next.push(place, write),
            (Expect::Held(_), Some(_)) => renewals.push(place, write),
            (_, None) => to.set(place, Ok(Swap::Lost)),
        }
    }
    let sql = &connection.server.sql;
    let done = |_: &Write, parts: VersionParts| Swap::Done { version: parts.version(), since: None, granted: None };
    let send = async |set: &WriteSet, sql: &str| match set.is_empty() {
        true => Ok(()),
        false => set.set_answers(connection.run(set.batch(sql, None)).await, to, WRITES_AT, done),
    };
    let (new, next, renewals) =
        tokio::join!(send(&new, &sql.insert), send(&next, &sql.update), send(&renewals, &sql.renew));
    new.and(next).and(renewals)
}

/// The seats that one batch writes, each with its place in the call and the random number of its write.
#[derive(Default)]
pub(crate) struct WriteSet(Vec<(usize, Write, String)>);

impl WriteSet {
    pub(crate) fn push(&mut self, place: usize, write: &Write) {
        self.0.push((place, write.clone(), format!("{:016x}", rand::random::<u64>())));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn writes(&self) -> impl Iterator<Item = &Write> {
        self.0.iter().map(|(_, write, _)| write)
    }

    /// `session`: the session that takes the locks of the seats, in `mode=session`.
    pub(crate) fn batch(&self, sql: &str, session: Option<(&str, &LockNames)>) -> String {
        let want = |(_, write, number): &(usize, Write, String)| Want::write(write, number, session);
        batch(&self.0.iter().map(want).collect::<Vec<_>>(), sql)
    }

    /// Sets the answer of each seat by the results of the batch, whose statement at `writes_at` writes, and whose next
    /// one says what was written. `done` returns the answer for a seat that was written.
    ///
    /// # Errors
    /// Returns an error, and sets no answers, if nothing was written and one of the seats may be the cause.
    pub(crate) fn set_answers(
        &self,
        answer: Result<Results, Failed>,
        to: &Answers<Swap>,
        writes_at: usize,
        mut done: impl FnMut(&Write, VersionParts) -> Swap,
    ) -> Result<(), StoreError> {
        let results = match answer {
            Ok(results) => results,
            Err(failed) if failed.is_caused_by_one(writes_at) => return Err(StoreError::from(failed).caused_by_one()),
            Err(failed) => {
                let error = failed.into_error(writes_at);
                self.0.iter().for_each(|(place, ..)| to.set(*place, Err(error.clone())));
                return Ok(());
            }
        };
        for row in results.into_iter().nth(writes_at + 1).unwrap_or_default() {
            let (at, is_written, is_as_expected, identity): (usize, bool, bool, String) = mysql_async::from_row(row);
            let Some((place, write, number)) = self.0.get(at.wrapping_sub(1)) else { continue };
            let parts = VersionParts { number: number.clone(), identity, session: None };
            to.set(
                *place,
                match (is_written, is_as_expected) {
                    (true, _) => Ok(done(write, parts)),
                    (_, true) => Err(StoreError::refused("the row of the seat is locked by another transaction")),
                    (_, false) => Ok(Swap::Lost),
                },
            );
        }
        Ok(())
    }
}

/// Lists all seats, of both modes. A name that no election can have is left out.
pub(crate) async fn list(connection: &Arc<MyConnection>) -> Result<Vec<SeatName>, StoreError> {
    match connection.run(connection.server.sql.list.clone()).await {
        Ok(results) => {
            let name = |row| String::from_utf8(mysql_async::from_row::<Vec<u8>>(row)).ok();
            Ok(results.into_iter().flatten().filter_map(name).filter_map(|name| SeatName::new(name).ok()).collect())
        }
        Err(failed) if failed.is_missing_table() => Ok(Vec::new()),
        Err(failed) => Err(failed.into()),
    }
}

/// Removes a seat and its notes, and keeps its token as a floor, in one transaction: the row stays locked until both are
/// written, so no term begins in between.
pub(crate) async fn forget(connection: &Arc<MyConnection>, seat: &SeatName) -> Result<(), StoreError> {
    let sql = format!("SET @tenure_want = '{}'; {}", hex(seat.as_str().as_bytes()), connection.server.sql.forget);
    connection.run(sql).await.map(drop).map_err(|failed| {
        // The transaction of a batch that failed half-way ends with its connection.
        connection.close();
        failed.into()
    })
}
