//! `mode=lease`: rows that are renewed, on the server's clock. And what both modes read and write alike.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use tenure_core::{
    Answers, Expect, Identity, Life, Reading, Record, Seat, SeatName, StoreError, StoreTime, Swap, Token, Write, record,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Param, PgConnection, numbers, text, texts};
use crate::errors::Failed;
use crate::pushes;
use crate::seats::{Mark, nonce_of, number_of};

/// Reads seats, in one statement.
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

/// Reads what both modes have in common; `life` tells of the holder.
pub(crate) async fn read_by(
    connection: &Arc<PgConnection>,
    sql: &str,
    seats: &[SeatName],
    to: &Answers<Reading>,
    life: impl Fn(&Row, &SeatName, &Record) -> Result<Life, StoreError>,
) -> Result<(), StoreError> {
    let rows = match connection.ask(sql, vec![texts(names(seats.iter()))]).await {
        Ok(rows) => rows,
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
            let mark = Mark { nonce: row.get(2), identity: identity.to_owned(), session: row.get(3) };
            Some(Seat { record, version: mark.version(), life })
        }
    };
    let floor = row.get::<_, Option<i64>>(5).and_then(|token| token.try_into().ok()).unwrap_or_default();
    Ok(Reading { seat, floor: Token::new(floor), identity: Some(Identity::new(identity)) })
}

/// A leader in one mode would be taken for gone by the other.
pub(crate) fn other_mode(theirs: &str, ours: &str) -> StoreError {
    StoreError::denied(format!("the seat is held in mode={theirs}, and this is mode={ours}: use the same everywhere"))
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(micros) * 1000)
}

/// Writes seats: new ones in one statement, others in a second and those that we hold in a third, one behind the
/// other on the same connection. Each is a transaction of its own, so that none fails for the sake of another.
pub(crate) async fn write(
    connection: &Arc<PgConnection>,
    writes: &[Write],
    to: &Answers<Swap>,
) -> Result<(), StoreError> {
    let [mut new, mut next, mut kept] = [Batch::default(), Batch::default(), Batch::default()];
    for (place, write) in writes.iter().enumerate() {
        match (&write.expect, Mark::of(&write.expect)) {
            (Expect::Absent(_), _) => new.push(place, write, None),
            (Expect::Version(_), Some(mark)) => next.push(place, write, Some(mark)),
            (Expect::Held(_), Some(mark)) => kept.push(place, write, Some(mark)),
            (_, None) => to.set(place, Ok(Swap::Lost)),
        }
    }
    let sql = &connection.server.seats;
    let done = |_: &Write, mark: Mark| Swap::Done { version: mark.version(), since: None, granted: None };
    let send = async |batch: &Batch<&Write>, sql: &str, params: Vec<Param>| match batch.is_empty() {
        true => Ok(()),
        false => batch.told(connection.ask(sql, params).await, to, done),
    };
    let (new, next, kept) = tokio::join!(
        send(&new, &sql.insert, new.on_absence()),
        send(&next, &sql.update, next.on_versions()),
        send(&kept, &sql.renew, kept.on_holders()),
    );
    new.and(next).and(kept)
}

/// Has the server read and plan the statement of a bid before there is one to make: that takes several times as long
/// as the bid itself.
pub(crate) async fn warm_up(connection: &Arc<PgConnection>) {
    if !connection.server.pooled {
        let _ = connection.ask(&connection.server.seats.update, Batch::<&Write>::default().on_versions()).await;
    }
}

/// Seats that one statement is to write.
pub(crate) struct Batch<W> {
    /// Each with its place in the call, and what its row must have been seen as, if there is to be one.
    rows: Vec<(usize, W, Option<Mark>)>,
}

impl<W> Default for Batch<W> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<W: Borrow<Write>> Batch<W> {
    pub(crate) fn push(&mut self, place: usize, write: W, mark: Option<Mark>) {
        self.rows.push((place, write, mark));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn writes(&self) -> impl Iterator<Item = &Write> {
        self.rows.iter().map(|(_, write, _)| write.borrow())
    }

    /// What is to be written.
    pub(crate) fn columns(&self) -> Vec<Param> {
        vec![
            texts(names(self.writes().map(|write| &write.seat))),
            texts(self.writes().map(|write| record::to_json(&write.record)).collect()),
            texts(self.writes().map(|write| nonce_of(&write.record)).collect()),
            numbers(self.writes().map(|write| number_of(write.record.token)).collect()),
        ]
    }

    /// The versions that rows must have, and the lives of the data that those were read in.
    pub(crate) fn marks(&self) -> [Param; 2] {
        let marks = || self.rows.iter().filter_map(|(_, _, mark)| mark.as_ref());
        [
            texts(marks().map(|mark| mark.nonce.clone()).collect()),
            texts(marks().map(|mark| mark.identity.clone()).collect()),
        ]
    }

    /// The data that seats were absent from.
    pub(crate) fn absences(&self) -> Param {
        let identity = |write: &Write| match &write.expect {
            Expect::Absent(identity) => identity.as_ref().map(|identity| identity.as_str().to_owned()),
            Expect::Version(_) | Expect::Held(_) => None,
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
        params.extend(self.marks());
        params
    }

    /// With the holders that rows must name, in place of versions.
    fn on_holders(&self) -> Vec<Param> {
        let holder = |write: &Write| write.record.holder.as_ref().map(|holder| holder.incarnation.to_string());
        let holders: Vec<Option<String>> = self.writes().map(holder).collect();
        let [_, identities] = self.marks();
        let mut params = self.columns();
        params.extend([(Box::new(holders) as _, Type::TEXT_ARRAY), identities]);
        params
    }

    /// Answers for each seat by what the statement has said: its row names the versions that were written, and those
    /// that were not as somebody else has locked their rows. `done` is told of each that was written.
    ///
    /// # Errors
    /// If nothing has happened and one of the seats may be to blame: then none is answered for.
    pub(crate) fn told(
        &self,
        answer: Result<Vec<Row>, Failed>,
        to: &Answers<Swap>,
        mut done: impl FnMut(&Write, Mark) -> Swap,
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
                    Some(true) => Ok(done(write, Mark { nonce, identity: identity.to_owned(), session: None })),
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

pub(crate) async fn forget(connection: &Arc<PgConnection>, seat: &SeatName) -> Result<(), StoreError> {
    let params = vec![text(seat.as_str()), text(pushes::removed(seat))];
    connection.ask(&connection.server.seats.forget, params).await?;
    Ok(())
}
