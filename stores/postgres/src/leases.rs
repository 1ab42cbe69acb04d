//! `mode=lease`: leaders renew rows, whose age is measured by the server's clock. Also has the parts of reading and
//! writing that both modes share.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use tenure_core::{
    Answers, DataIdentity, Expect, Life, Reading, Record, Seat, SeatName, StoreError, StoreTime, Swap, Token, Write,
    record,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Param, PgConnection, numbers, text, texts};
use crate::errors::Failed;
use crate::notifications;
use crate::seats::{VersionParts, nonce_of, number_of};

/// Reads seats in one statement.
pub(crate) async fn read(
    connection: &Arc<PgConnection>,
    seats: &[SeatName],
    to: &Answers<Reading>,
) -> Result<(), StoreError> {
    read_by(connection, &connection.server.seats.read, seats, to, |row, _, record| {
        if row.get::<_, Option<i64>>(3).is_some() && !record.is_vacant() {
            return Err(other_mode("session", "lease"));
        }
        Ok(Life::Clock { now: store_time(row.get(8)), renewed: store_time(row.get(7)) })
    })
    .await
}

/// Reads seats with the statement of either mode. `life` returns whether the holder of a row is alive.
pub(crate) async fn read_by(
    connection: &Arc<PgConnection>,
    sql: &str,
    seats: &[SeatName],
    to: &Answers<Reading>,
    life: impl Fn(&Row, &SeatName, &Record) -> Result<Life, StoreError>,
) -> Result<(), StoreError> {
    let rows = match connection.query(sql, vec![texts(names(seats.iter()))]).await {
        Ok(rows) => rows,
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => {
            let nothing = || Reading { seat: None, floor: Token::ZERO, identity: None };
            (0..seats.len()).for_each(|place| to.set(place, Ok(nothing())));
            return Ok(());
        }
        Err(failed) if failed.is_caused_by_one() => return Err(StoreError::from(failed).caused_by_one()),
        Err(failed) => return Err(failed.into()),
    };
    for row in rows {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        if let Some(seat) = seats.get(place) {
            to.set(place, reading(&row, |record| life(&row, seat, record)));
        }
    }
    Ok(())
}

fn reading(row: &Row, life: impl FnOnce(&Record) -> Result<Life, StoreError>) -> Result<Reading, StoreError> {
    let identity: &str = row.get(6);
    let seat = match row.get::<_, Option<&str>>(1) {
        None => None,
        Some(json) => {
            let record = record::from_json(json)?;
            let life = life(&record)?;
            let parts = VersionParts { nonce: row.get(2), identity: identity.to_owned(), session: row.get(3) };
            Some(Seat { record, version: parts.version(), life })
        }
    };
    let floor = row.get::<_, Option<i64>>(5).and_then(|token| token.try_into().ok()).unwrap_or_default();
    Ok(Reading { seat, floor: Token::new(floor), identity: Some(DataIdentity::new(identity)) })
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

/// Writes seats: inserts, updates and renewals each share a statement. The three are pipelined on one connection.
/// Each is a transaction of its own, so that the failure of one does not affect the others.
pub(crate) async fn write(
    connection: &Arc<PgConnection>,
    writes: &[Write],
    to: &Answers<Swap>,
) -> Result<(), StoreError> {
    let [mut new, mut next, mut renewals] = [WriteSet::default(), WriteSet::default(), WriteSet::default()];
    for (place, write) in writes.iter().enumerate() {
        match (&write.expect, VersionParts::of(&write.expect)) {
            (Expect::Absent(_), _) => new.push(place, write, None),
            (Expect::Version(_) | Expect::HolderDead(_), Some(expected)) => next.push(place, write, Some(expected)),
            (Expect::Held(_), Some(expected)) => renewals.push(place, write, Some(expected)),
            (_, None) => to.set(place, Ok(Swap::Lost)),
        }
    }
    let sql = &connection.server.seats;
    let done = |_: &Write, parts: VersionParts| Swap::Done { version: parts.version(), since: None, granted: None };
    let send = async |set: &WriteSet<&Write>, sql: &str, params: Vec<Param>| match set.is_empty() {
        true => Ok(()),
        false => set.set_answers(connection.query(sql, params).await, to, done),
    };
    let (new, next, renewals) = tokio::join!(
        send(&new, &sql.insert, new.on_absence()),
        send(&next, &sql.update, next.on_versions()),
        send(&renewals, &sql.renew, renewals.on_holders()),
    );
    new.and(next).and(renewals)
}

/// Makes the server parse and plan the statement of a bid before the first bid: that takes several times as long
/// as the bid.
pub(crate) async fn warm_up(connection: &Arc<PgConnection>) {
    if !connection.server.pooled {
        let _ = connection.query(&connection.server.seats.update, WriteSet::<&Write>::default().on_versions()).await;
    }
}

/// The seats that one statement writes.
pub(crate) struct WriteSet<W> {
    /// For each seat: its place in the call, the write, and the version that was read, if the seat existed.
    rows: Vec<(usize, W, Option<VersionParts>)>,
}

impl<W> Default for WriteSet<W> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<W: Borrow<Write>> WriteSet<W> {
    pub(crate) fn push(&mut self, place: usize, write: W, expected: Option<VersionParts>) {
        self.rows.push((place, write, expected));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn writes(&self) -> impl Iterator<Item = &Write> {
        self.rows.iter().map(|(_, write, _)| write.borrow())
    }

    /// Returns the new values of the rows, as columns.
    pub(crate) fn columns(&self) -> Vec<Param> {
        vec![
            texts(names(self.writes().map(|write| &write.seat))),
            texts(self.writes().map(|write| record::to_json(&write.record)).collect()),
            texts(self.writes().map(|write| nonce_of(&write.record)).collect()),
            numbers(self.writes().map(|write| number_of(write.record.token)).collect()),
        ]
    }

    /// Returns the versions that the rows must have, and the identities of the data in which they were read.
    pub(crate) fn expected_versions(&self) -> [Param; 2] {
        let expected = || self.rows.iter().filter_map(|(_, _, expected)| expected.as_ref());
        [
            texts(expected().map(|parts| parts.nonce.clone()).collect()),
            texts(expected().map(|parts| parts.identity.clone()).collect()),
        ]
    }

    /// Returns the identities of the data in which the seats were absent.
    pub(crate) fn absences(&self) -> Param {
        let identity = |write: &Write| match &write.expect {
            Expect::Absent(identity) => identity.as_ref().map(|identity| identity.as_str().to_owned()),
            Expect::Version(_) | Expect::Held(_) | Expect::HolderDead(_) => None,
        };
        let identities: Vec<Option<String>> = self.writes().map(identity).collect();
        (Box::new(identities), Type::TEXT_ARRAY)
    }

    fn on_absence(&self) -> Vec<Param> {
        let mut params = self.columns();
        params.push(self.absences());
        params
    }

    fn on_versions(&self) -> Vec<Param> {
        let mut params = self.columns();
        params.extend(self.expected_versions());
        params
    }

    /// Returns the parameters of a renewal, with the holders that the rows must name in place of versions.
    fn on_holders(&self) -> Vec<Param> {
        let holder = |write: &Write| write.record.holder.as_ref().map(|holder| holder.incarnation.to_string());
        let holders: Vec<Option<String>> = self.writes().map(holder).collect();
        let [_, identities] = self.expected_versions();
        let mut params = self.columns();
        params.extend([(Box::new(holders) as _, Type::TEXT_ARRAY), identities]);
        params
    }

    /// Sets the answer of each seat by the result of the statement: its row names the versions that were written,
    /// and the versions that were not written because another transaction has locked the row. `done` returns the
    /// answer for a seat that was written.
    ///
    /// # Errors
    /// Returns an error, and sets no answers, if nothing was written and one of the seats may be the cause.
    pub(crate) fn set_answers(
        &self,
        answer: Result<Vec<Row>, Failed>,
        to: &Answers<Swap>,
        mut done: impl FnMut(&Write, VersionParts) -> Swap,
    ) -> Result<(), StoreError> {
        let rows = match answer {
            Ok(rows) => rows,
            Err(failed) if failed.is_caused_by_one() => return Err(StoreError::from(failed).caused_by_one()),
            Err(failed) => {
                let error = StoreError::from(failed);
                self.rows.iter().for_each(|(place, ..)| to.set(*place, Err(error.clone())));
                return Ok(());
            }
        };
        let Some(row) = rows.first() else { return Ok(()) };
        let identity: &str = row.get(0);
        let mut outcomes = HashMap::new();
        for (column, is_written) in [(2, false), (1, true)] {
            let versions: Option<Vec<&str>> = row.get(column);
            outcomes.extend(versions.unwrap_or_default().into_iter().map(|version| (version, is_written)));
        }
        for (place, write, _) in &self.rows {
            let write = write.borrow();
            let nonce = nonce_of(&write.record);
            to.set(
                *place,
                match outcomes.get(nonce.as_str()) {
                    Some(true) => Ok(done(write, VersionParts { nonce, identity: identity.to_owned(), session: None })),
                    Some(false) => Err(StoreError::refused("the row of the seat is locked by another transaction")),
                    None => Ok(Swap::Lost),
                },
            );
        }
        Ok(())
    }
}

fn names<'a>(seats: impl Iterator<Item = &'a SeatName>) -> Vec<String> {
    seats.map(|seat| seat.as_str().to_owned()).collect()
}

/// Lists all seats, of both modes. A name that no election can have is left out.
pub(crate) async fn list(connection: &Arc<PgConnection>) -> Result<Vec<SeatName>, StoreError> {
    match connection.query(&connection.server.seats.list, Vec::new()).await {
        Ok(rows) => Ok(rows.iter().filter_map(|row| SeatName::new(row.get::<_, &str>(0)).ok()).collect()),
        Err(failed) if failed.is_missing_table() => Ok(Vec::new()),
        Err(failed) => Err(failed.into()),
    }
}

pub(crate) async fn forget(connection: &Arc<PgConnection>, seat: &SeatName) -> Result<(), StoreError> {
    let params = vec![text(seat.as_str()), text(notifications::removal_payload(seat))];
    connection.query(&connection.server.seats.forget, params).await?;
    Ok(())
}
