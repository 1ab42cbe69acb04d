//! `mode=lease`: a row that is renewed, on the server's clock. And what both modes read alike.

use tenure_core::{
    Identity, Life, Reading, Record, Seat, SeatName, StoreError, StoreTime, Swap, Token, Version, record,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::bells::Bell;
use crate::link::Link;
use crate::seats::{Mark, nonce_of, number_of};

/// A reading, and what else it tells.
pub(crate) struct Glance {
    pub(crate) reading: Reading,
    /// The session that the seat is held on.
    pub(crate) session: Option<i64>,
    /// Whether a request lies on the board.
    pub(crate) requested: bool,
}

/// Who reads: a call that is given up only when it takes too long, or a watch that may be dropped at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Call,
    Watch,
}

/// Asks for what there is to know of a seat.
pub(crate) async fn ask(link: &Link, sql: &str, seat: &SeatName, reader: Reader) -> Result<Vec<Row>, StoreError> {
    let (name, text) = (seat.as_str(), Type::TEXT);
    match reader {
        Reader::Call => link.query(sql, &[(&name, text)]).await,
        Reader::Watch => link.query_idly(sql, &[(&name, text)]).await,
    }
}

pub(crate) async fn read(link: &Link, seat: &SeatName, reader: Reader) -> Result<Glance, StoreError> {
    let rows = ask(link, &link.server.seats.read, seat, reader).await?;
    glance(&rows, |row, record, session, _| {
        if session.is_some() && !record.is_vacant() {
            return Err(other_mode("session", "lease"));
        }
        Ok(Life::Clock { now: store_time(row.get(7)), renewed: store_time(row.get(6)) })
    })
}

/// Reads what both modes have in common.
pub(crate) fn glance(
    rows: &[Row],
    life: impl FnOnce(&Row, &Record, Option<i64>, Option<i64>) -> Result<Life, StoreError>,
) -> Result<Glance, StoreError> {
    let row = rows.first().ok_or_else(|| StoreError::refused("PostgreSQL has answered with no row"))?;
    let identity: String = row.get(5);
    let session: Option<i64> = row.get(2);
    let seat = match row.get::<_, Option<&str>>(0) {
        None => None,
        Some(json) => {
            let record = record::from_json(json)?;
            let life = life(row, &record, session, row.get(3))?;
            let mark = Mark { nonce: row.get(1), identity: identity.clone(), session };
            Some(Seat { record, version: mark.version(), life })
        }
    };
    let floor = row.get::<_, Option<i64>>(4).and_then(|token| token.try_into().ok()).unwrap_or_default();
    let reading = Reading { seat, floor: Token::new(floor), identity: Some(Identity::new(identity)) };
    Ok(Glance { reading, session, requested: row.get(8) })
}

/// A leader in one mode would be taken for gone by the other.
pub(crate) fn other_mode(theirs: &str, ours: &str) -> StoreError {
    StoreError::denied(format!("the seat is held in mode={theirs}, and this is mode={ours}: use the same everywhere"))
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(micros) * 1000)
}

/// See the argument in `seats.rs`.
pub(crate) async fn swap(
    link: &Link,
    seat: &SeatName,
    expected: Option<&Version>,
    next: &Record,
) -> Result<Swap, StoreError> {
    let (name, json, nonce, token) = (seat.as_str(), record::to_json(next), nonce_of(next), number_of(next.token));
    let bell = Bell::Holder.payload(seat);
    let mut params: Vec<(&(dyn ToSql + Sync), Type)> =
        vec![(&name, Type::TEXT), (&json, Type::TEXT), (&nonce, Type::TEXT), (&token, Type::INT8), (&bell, Type::TEXT)];
    let mark;
    let rows = match expected {
        None => link.query(&link.server.seats.insert, &params).await?,
        Some(expected) => {
            let Some(parsed) = Mark::parse(expected) else { return Ok(Swap::Lost) };
            mark = parsed;
            params.extend([(&mark.nonce as _, Type::TEXT), (&mark.identity as _, Type::TEXT)]);
            link.query(&link.server.seats.update, &params).await?
        }
    };
    let Some(row) = rows.first() else { return Ok(Swap::Lost) };
    let version = Mark { identity: row.get(0), nonce, session: None }.version();
    Ok(Swap::Done { version, since: None, granted: None })
}

/// One statement, one row, nobody woken.
pub(crate) async fn renew(link: &Link, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
    let Some(mark) = Mark::parse(held) else { return Ok(Swap::Lost) };
    let (name, json, nonce, unused) = (seat.as_str(), record::to_json(record), nonce_of(record), None::<i64>);
    let params: [(&(dyn ToSql + Sync), Type); 7] = [
        (&name, Type::TEXT),
        (&json, Type::TEXT),
        (&nonce, Type::TEXT),
        (&unused, Type::INT8),
        (&unused, Type::INT8),
        (&mark.nonce, Type::TEXT),
        (&mark.identity, Type::TEXT),
    ];
    let rows = link.query(&link.server.seats.renew, &params).await?;
    let (written, as_expected) = rows.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
    match (written, as_expected) {
        (true, _) => Ok(Swap::Done { version: Mark { nonce, ..mark }.version(), since: None, granted: None }),
        (false, true) => Err(StoreError::refused("the row of the seat is locked by another transaction")),
        (false, false) => Ok(Swap::Lost),
    }
}

pub(crate) async fn forget(link: &Link, seat: &SeatName) -> Result<(), StoreError> {
    let (name, bell) = (seat.as_str(), Bell::Holder.payload(seat));
    link.query(&link.server.seats.forget, &[(&name, Type::TEXT), (&bell, Type::TEXT)]).await.map(drop)
}
