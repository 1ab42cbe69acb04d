//! `mode=lease`: a row that is renewed, on the server's clock. And what both modes read alike.

use std::collections::HashSet;
use std::sync::Arc;

use tenure_core::{
    Identity, Life, Reading, Record, Seat, SeatName, StoreError, StoreTime, Swap, Token, Version, record,
};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::bells;
use crate::gather::{self, Call, Gather};
use crate::link::Link;
use crate::lone::{self, Param};
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
pub(crate) struct Read(SeatName);

impl Call for Read {
    type Answer = Row;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.read
    }

    fn target(&self) -> Option<(&str, &str)> {
        None
    }

    fn weight(&self) -> usize {
        self.0.as_str().len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let sql = if link.sessions { &link.server.seats.read_alive } else { &link.server.seats.read };
        let names: Vec<&str> = calls.iter().map(|call| call.0.as_str()).collect();
        let mut rows = link.ask(sql, &[(&names, Type::TEXT_ARRAY)]).await?;
        rows.sort_by_key(|row| row.get::<_, i64>(0));
        Ok(rows)
    }
}

pub(crate) async fn ask(link: &Arc<Link>, seat: &SeatName, reader: Reader) -> Result<Row, StoreError> {
    let call = Read(seat.clone());
    match reader {
        Reader::Call => link.call(call).await,
        Reader::Watch => gather::call(link, call).await,
    }
}

pub(crate) async fn read(link: &Arc<Link>, seat: &SeatName, reader: Reader) -> Result<Glance, StoreError> {
    let row = ask(link, seat, reader).await?;
    glance(&row, |row, record, session, _| {
        if session.is_some() && !record.is_vacant() {
            return Err(other_mode("session", "lease"));
        }
        Ok(Life::Clock { now: store_time(row.get(8)), renewed: store_time(row.get(7)) })
    })
}

/// Reads what both modes have in common.
pub(crate) fn glance(
    row: &Row,
    life: impl FnOnce(&Row, &Record, Option<i64>, Option<i64>) -> Result<Life, StoreError>,
) -> Result<Glance, StoreError> {
    let identity: &str = row.get(6);
    let session: Option<i64> = row.get(3);
    let seat = match row.get::<_, Option<&str>>(1) {
        None => None,
        Some(json) => {
            let record = record::from_json(json)?;
            let life = life(row, &record, session, row.get(4))?;
            let mark = Mark { nonce: row.get(2), identity: identity.to_owned(), session };
            Some(Seat { record, version: mark.version(), life })
        }
    };
    let floor = row.get::<_, Option<i64>>(5).and_then(|token| token.try_into().ok()).unwrap_or_default();
    let reading = Reading { seat, floor: Token::new(floor), identity: Some(Identity::new(identity)) };
    Ok(Glance { reading, session, requested: row.get(9) })
}

/// A leader in one mode would be taken for gone by the other.
pub(crate) fn other_mode(theirs: &str, ours: &str) -> StoreError {
    StoreError::denied(format!("the seat is held in mode={theirs}, and this is mode={ours}: use the same everywhere"))
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(micros) * 1000)
}

/// What is to be written.
pub(crate) struct Write {
    pub(crate) seat: SeatName,
    pub(crate) json: String,
    pub(crate) nonce: String,
    pub(crate) token: i64,
}

impl Write {
    pub(crate) fn new(seat: &SeatName, next: &Record) -> Self {
        Self { seat: seat.clone(), json: record::to_json(next), nonce: nonce_of(next), token: number_of(next.token) }
    }
}

/// The columns of what is to be written.
pub(crate) struct Columns<'a> {
    names: Vec<&'a str>,
    records: Vec<&'a str>,
    versions: Vec<&'a str>,
    tokens: Vec<i64>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(writes: impl Iterator<Item = &'a Write>) -> Self {
        let mut columns = Self { names: Vec::new(), records: Vec::new(), versions: Vec::new(), tokens: Vec::new() };
        for write in writes {
            columns.names.push(write.seat.as_str());
            columns.records.push(&write.json);
            columns.versions.push(&write.nonce);
            columns.tokens.push(write.token);
        }
        columns
    }

    pub(crate) fn params(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        vec![
            (&self.names, Type::TEXT_ARRAY),
            (&self.records, Type::TEXT_ARRAY),
            (&self.versions, Type::TEXT_ARRAY),
            (&self.tokens, Type::INT8_ARRAY),
        ]
    }
}

/// Of those that were to be written, which were: to them, the life of the data.
pub(crate) fn written<'a>(rows: &[Row], writes: impl Iterator<Item = &'a Write>) -> Vec<Option<String>> {
    let row = rows.first();
    let identity: Option<&str> = row.map(|row| row.get(0));
    let done: HashSet<&str> =
        row.and_then(|row| row.get::<_, Option<Vec<&str>>>(1)).unwrap_or_default().into_iter().collect();
    writes.map(|write| identity.filter(|_| done.contains(write.nonce.as_str())).map(str::to_owned)).collect()
}

/// A new seat.
pub(crate) struct Insert(Write);

impl Call for Insert {
    /// The life of the data that it was written in, if it was.
    type Answer = Option<String>;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.insert
    }

    fn target(&self) -> Option<(&str, &str)> {
        Some((self.0.seat.as_str(), ""))
    }

    fn weight(&self) -> usize {
        self.0.json.len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Self::Answer>, tokio_postgres::Error> {
        let writes = || calls.iter().map(|call| &call.0);
        let columns = Columns::of(writes());
        let rows = link.ask(&link.server.seats.insert, &columns.params()).await?;
        Ok(written(&rows, writes()))
    }
}

/// A seat in place of another, or of itself.
pub(crate) struct Update {
    write: Write,
    held: Mark,
}

impl Update {
    fn marks<'a>(calls: &[&'a Self]) -> (Vec<&'a str>, Vec<&'a str>) {
        calls.iter().map(|call| (call.held.nonce.as_str(), call.held.identity.as_str())).unzip()
    }
}

impl Call for Update {
    type Answer = Option<String>;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.update
    }

    fn target(&self) -> Option<(&str, &str)> {
        Some((self.write.seat.as_str(), ""))
    }

    fn weight(&self) -> usize {
        self.write.json.len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Self::Answer>, tokio_postgres::Error> {
        let writes = || calls.iter().map(|call| &call.write);
        let (columns, (held, identities)) = (Columns::of(writes()), Self::marks(calls));
        let mut params = columns.params();
        params.extend([(&held as _, Type::TEXT_ARRAY), (&identities as _, Type::TEXT_ARRAY)]);
        let rows = link.ask(&link.server.seats.update, &params).await?;
        Ok(written(&rows, writes()))
    }
}

/// The same for a seat that we hold: nobody is woken.
pub(crate) struct Renew(Update);

/// What came of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    /// Somebody else has locked the row.
    Locked,
    No,
}

impl Call for Renew {
    type Answer = Renewed;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.renew
    }

    fn target(&self) -> Option<(&str, &str)> {
        self.0.target()
    }

    fn weight(&self) -> usize {
        self.0.weight()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Renewed>, tokio_postgres::Error> {
        let calls: Vec<&Update> = calls.iter().map(|call| &call.0).collect();
        let (columns, (held, identities)) = (Columns::of(calls.iter().map(|call| &call.write)), Update::marks(&calls));
        let mut params = columns.params();
        params.extend([(&held as _, Type::TEXT_ARRAY), (&identities as _, Type::TEXT_ARRAY)]);
        let rows = link.ask(&link.server.seats.renew, &params).await?;
        let numbers = |column| rows.first().and_then(|row| row.get::<_, Option<Vec<i64>>>(column)).unwrap_or_default();
        let mut answers = vec![Renewed::No; calls.len()];
        for (column, renewed) in [(1, Renewed::Locked), (0, Renewed::Yes)] {
            for number in numbers(column) {
                if let Some(answer) = usize::try_from(number - 1).ok().and_then(|at| answers.get_mut(at)) {
                    *answer = renewed;
                }
            }
        }
        Ok(answers)
    }
}

/// See the argument in `seats.rs`.
pub(crate) async fn swap(
    link: &Arc<Link>,
    seat: &SeatName,
    expected: Option<&Version>,
    next: &Record,
) -> Result<Swap, StoreError> {
    let (write, nonce) = (Write::new(seat, next), nonce_of(next));
    let identity = match expected {
        None => link.call(Insert(write)).await?,
        Some(expected) => {
            let Some(held) = Mark::parse(expected) else { return Ok(Swap::Lost) };
            link.call(Update { write, held }).await?
        }
    };
    Ok(match identity {
        Some(identity) => {
            Swap::Done { version: Mark { identity, nonce, session: None }.version(), since: None, granted: None }
        }
        None => Swap::Lost,
    })
}

pub(crate) async fn renew(
    link: &Arc<Link>,
    seat: &SeatName,
    held: &Version,
    record: &Record,
) -> Result<Swap, StoreError> {
    let Some(mark) = Mark::parse(held) else { return Ok(Swap::Lost) };
    let nonce = nonce_of(record);
    match link.call(Renew(Update { write: Write::new(seat, record), held: mark.clone() })).await? {
        Renewed::Yes => Ok(Swap::Done { version: Mark { nonce, ..mark }.version(), since: None, granted: None }),
        Renewed::Locked => Err(StoreError::refused("the row of the seat is locked by another transaction")),
        Renewed::No => Ok(Swap::Lost),
    }
}

pub(crate) async fn forget(link: &Arc<Link>, seat: &SeatName) -> Result<(), StoreError> {
    let params = vec![Param::Text(seat.as_str().to_owned()), Param::Text(bells::removed(seat))];
    lone::ask(link, &link.server.seats.forget, params).await.map(drop)
}
