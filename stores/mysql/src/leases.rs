//! `mode=lease`: leaders renew rows, whose age is measured by the server's clock. Also has the parts of reading and
//! writing that both modes share.

use std::sync::Arc;

use futures_util::future::join_all;
use mysql_async::Row;
use serde_json::Value;
use tenure_core::{Answers, Fault, Reading, SeatName, StoreError, Swap, Write};
use tenure_kit::sql::want::{self, hex};
use tenure_kit::sql::{self, Mode, SeatRow, WriteKind, WriteSet, Written};
use tenure_kit::sql::{BatchError, LockConnection};

use crate::connection::MyConnection;
use crate::errors;
use crate::seats::{self, WRITES_AT, about};

/// Reads seats in one statement.
pub(crate) async fn read(
    connection: &Arc<MyConnection>,
    mode: Mode,
    seats: &[SeatName],
    to: &Answers<Reading>,
) -> Result<(), StoreError> {
    let sql = connection.server.sql(seats::READ);
    let results = match connection.run(about(&want::seats(seats, |_| None), &sql)).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => {
            sql::all_vacant(seats.len(), to);
            return Ok(());
        }
        results => results?,
    };
    for row in results.into_iter().nth(1).unwrap_or_default() {
        let place = row.get::<usize, _>(0).unwrap_or(0).wrapping_sub(1);
        to.set(place, reading(connection, &row, mode));
    }
    Ok(())
}

fn reading(connection: &MyConnection, row: &Row, mode: Mode) -> Result<Reading, StoreError> {
    let text = |column: usize| row.get::<Option<String>, _>(column).flatten();
    let number = |column: usize| row.get::<Option<i64>, _>(column).flatten();
    let identity = text(5).filter(|identity| !identity.is_empty()).ok_or_else(|| {
        connection.abort();
        errors::answered_by_replica()
    })?;
    let now = number(7).unwrap_or(0);
    let seat = text(1).map(|record| SeatRow {
        record,
        write: text(2).unwrap_or_default(),
        session: number(3),
        is_alive: row.get(8).unwrap_or(false),
        written: number(6).unwrap_or(0),
        now,
    });
    let floor = row.get::<u64, _>(4).unwrap_or(0).max(now.try_into().unwrap_or(0));
    sql::reading(seat, mode, identity, floor)
}

/// Writes seats: inserts, updates and renewals each share a batch. Each is a transaction of its own, so that the failure
/// of one does not affect the others.
pub(crate) async fn write(
    connection: &Arc<MyConnection>,
    writes: &[Write],
    to: &Answers<Swap>,
) -> Result<(), StoreError> {
    let sets = WriteSet::split(writes.iter().enumerate(), |_| want::new_number(), to);
    let answers = sets.iter().map(async |set| {
        let want = want::writes(set, None, |_| None);
        let written = run(connection, &want, &connection.server.sql(&seats::write(set))).await;
        let written = match written {
            // A bid for a new seat that another transaction is inserting is lost: that is most likely another bid.
            Err(error) if is_conflict(&error) && set.kind == WriteKind::New && set.rows.len() == 1 => {
                Ok(Written::default())
            }
            written => written,
        };
        set.answer(written, to, |_, parts| Swap::Done { version: parts.version(), since: None, granted: None })
    });
    join_all(answers).await.into_iter().fold(Ok(()), Result::and)
}

/// Returns whether the statement had no effect because of another transaction.
fn is_conflict(error: &StoreError) -> bool {
    error.is_caused_by_one() && error.fault() == Fault::Refused
}

/// Runs a batch that writes seats.
pub(crate) async fn run(connection: &Arc<MyConnection>, want: &Value, sql: &str) -> Result<Written, StoreError> {
    let results = connection.run(about(want, sql)).await.map_err(|failed| failed.into_error(WRITES_AT))?;
    let mut written = Written::default();
    let Some(outcome) = results.into_iter().nth(WRITES_AT + 1) else {
        return Err(StoreError::unknown("MySQL has not said what was written"));
    };
    for row in outcome {
        let (number, is_written, is_locked, identity): (String, bool, bool, String) = mysql_async::from_row(row);
        if is_written || is_locked {
            written.outcomes.insert(number, is_written);
        }
        written.identity = identity;
    }
    Ok(written)
}

/// Lists all seats, of both modes. A name that no election can have is left out.
pub(crate) async fn list(connection: &Arc<MyConnection>) -> Result<Vec<SeatName>, StoreError> {
    let results = match connection.run(connection.server.sql(seats::LIST)).await {
        Err(failed) if failed.is_missing_table() => Vec::new(),
        results => results?,
    };
    let name = |row| String::from_utf8(mysql_async::from_row::<Vec<u8>>(row)).ok();
    Ok(results.into_iter().flatten().filter_map(name).filter_map(|name| SeatName::new(name).ok()).collect())
}

pub(crate) async fn forget(connection: &Arc<MyConnection>, seat: &SeatName) -> Result<(), StoreError> {
    let sql = about(&hex(seat.as_str()).into(), &connection.server.sql(seats::FORGET));
    connection.run(sql).await?;
    Ok(())
}
