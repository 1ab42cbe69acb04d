//! `mode=lease`: leaders renew rows, whose age is measured by the server's clock. Also has the parts of reading and
//! writing that both modes share.

use std::sync::Arc;

use futures_util::future::join_all;
use tenure_core::{Answers, Reading, SeatName, StoreError, Swap, Write, record};
use tenure_kit::nonce_of;
use tenure_kit::sql::{self, Mode, RowWrite, SeatRow, WriteKind, WriteSet, Written};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Param, PgConnection, numbers, text, texts};
use crate::errors::Failed;
use crate::notifications;
use crate::schema::lock_of;
use crate::seats::number_of;

/// Reads seats in one statement. `lock_id` is the lock of the only seat, if the options name one.
pub(crate) async fn read(
    connection: &Arc<PgConnection>,
    mode: Mode,
    lock_id: Option<i64>,
    seats: &[SeatName],
    to: &Answers<Reading>,
) -> Result<(), StoreError> {
    let statements = &connection.server.seats;
    let sql = if mode == Mode::Session { &statements.read_alive } else { &statements.read };
    let rows = match connection.query(sql, vec![texts(names(seats.iter()))]).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => {
            sql::all_vacant(seats.len(), to);
            return Ok(());
        }
        rows => rows?,
    };
    for row in rows {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        if let Some(seat) = seats.get(place) {
            to.set(place, reading(&row, mode, lock_of(seat, lock_id)));
        }
    }
    Ok(())
}

fn reading(row: &Row, mode: Mode, lock: i64) -> Result<Reading, StoreError> {
    let (session, held_by): (Option<i64>, Option<i64>) = (row.get(3), row.get(4));
    if mode == Mode::Session && session.is_some() && held_by != Some(lock) {
        return Err(StoreError::denied(format!(
            "the seat is held by the lock {}, but this program uses the lock {lock}; use the same lock_id in all \
             candidates",
            held_by.unwrap_or_default(),
        )));
    }
    let floor = row.get::<_, Option<i64>>(5).and_then(|token| token.try_into().ok()).unwrap_or_default();
    let seat = row.get::<_, Option<String>>(1).map(|record| SeatRow {
        record,
        write: row.get(2),
        session,
        is_alive: mode == Mode::Session && row.get::<_, Option<bool>>(9) == Some(true),
        written: row.get(7),
        now: row.get(8),
    });
    sql::reading(seat, mode, row.get(6), floor)
}

/// Writes seats: inserts, updates and renewals each share a statement. The three are pipelined on one connection.
/// Each is a transaction of its own, so that the failure of one does not affect the others.
pub(crate) async fn write(
    connection: &Arc<PgConnection>,
    writes: &[Write],
    to: &Answers<Swap>,
) -> Result<(), StoreError> {
    let sets = WriteSet::split(writes.iter().enumerate(), nonce_of, to);
    let answers = sets.iter().map(async |set| {
        let statements = &connection.server.seats;
        let sql = match set.kind {
            WriteKind::New => &statements.insert,
            WriteKind::Next => &statements.update,
            WriteKind::Renewal => &statements.renew,
        };
        let answer = connection.query(sql, params(set)).await;
        set.answer(written(answer), to, |_, parts| Swap::Done { version: parts.version(), since: None, granted: None })
    });
    join_all(answers).await.into_iter().fold(Ok(()), Result::and)
}

/// Makes the server parse and plan the statement of a bid before the first bid: that takes several times as long
/// as the bid.
pub(crate) async fn warm_up(connection: &Arc<PgConnection>) {
    if !connection.server.pooled {
        let nothing = WriteSet { kind: WriteKind::Next, rows: Vec::new() };
        let _ = connection.query(&connection.server.seats.update, params(&nothing)).await;
    }
}

fn params(set: &WriteSet) -> Vec<Param> {
    columns(set).into_iter().chain(expectations(set)).collect()
}

/// Returns the new values of the rows, as columns.
pub(crate) fn columns(set: &WriteSet) -> Vec<Param> {
    let rows = || set.rows.iter();
    vec![
        texts(names(rows().map(|row| &row.write.seat))),
        texts(rows().map(|row| record::to_json(&row.write.record)).collect()),
        texts(rows().map(|row| row.number.clone()).collect()),
        numbers(rows().map(|row| number_of(row.write.record.token)).collect()),
    ]
}

/// Returns what the rows must be like, as columns: the version or the holder, unless the row must not exist, and the
/// identity of the data in which that was read.
pub(crate) fn expectations(set: &WriteSet) -> Vec<Param> {
    let column = |of: fn(&RowWrite) -> Option<String>| -> Param {
        (Box::new(set.rows.iter().map(of).collect::<Vec<_>>()), Type::TEXT_ARRAY)
    };
    let held = match set.kind {
        WriteKind::New => None,
        WriteKind::Next => Some(column(|row| row.expected.as_ref().map(|parts| parts.write.clone()))),
        WriteKind::Renewal => Some(column(RowWrite::holder)),
    };
    held.into_iter().chain([column(|row| row.expected_identity().map(str::to_owned))]).collect()
}

/// Returns what a statement has written: its row names the versions that were written, and the versions that were not
/// written because another transaction has locked the row.
pub(crate) fn written(answer: Result<Vec<Row>, Failed>) -> Result<Written, StoreError> {
    let rows = answer?;
    let Some(row) = rows.first() else {
        return Err(StoreError::unknown("PostgreSQL has not said what was written"));
    };
    let mut written = Written { identity: row.get(0), ..Written::default() };
    for (column, is_written) in [(2, false), (1, true)] {
        let versions: Option<Vec<String>> = row.get(column);
        written.outcomes.extend(versions.unwrap_or_default().into_iter().map(|version| (version, is_written)));
    }
    Ok(written)
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
