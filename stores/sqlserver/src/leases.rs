//! `mode=lease`: leaders renew rows, whose age is measured by the server's clock. Also has the parts of reading and
//! writing that both modes share.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{Answers, Reading, SeatName, StoreError, Swap, Write};
use tenure_kit::sql::want::{self, hex};
use tenure_kit::sql::{self, BatchError, LockConnection, Mode, SeatRow, WriteSet, Written};
use tiberius::Row;

use crate::connection::{Batch, SqlConnection, name, number, text};
use crate::errors;
use crate::seats;
use crate::sessions::Heard;

/// Reads seats in one batch. Returns what is known of the sessions that hold them.
pub(crate) async fn read(
    connection: &Arc<SqlConnection>,
    mode: Mode,
    lease: Duration,
    seats: &[SeatName],
    to: &Answers<Reading>,
) -> Result<Vec<Heard>, StoreError> {
    let sql = connection.server.sql(&seats::wait_for_rows(&seats::read(), lease));
    let want = want::seats(seats, |_| None).to_string();
    let results = match connection.run(Batch { sql, want, ..Batch::default() }).await {
        Err(failed) if failed.is_missing_table() && connection.server.is_vacant => {
            sql::all_vacant(seats.len(), to);
            return Ok(Vec::new());
        }
        results => results?,
    };
    let rows = results.into_iter().next().unwrap_or_default();
    for row in &rows {
        let place = number(row, 0).and_then(|place| usize::try_from(place).ok()).unwrap_or(0).wrapping_sub(1);
        to.set(place, reading(connection, row, mode));
    }
    Ok(rows.iter().filter_map(heard).collect())
}

fn reading(connection: &SqlConnection, row: &Row, mode: Mode) -> Result<Reading, StoreError> {
    let identity = text(row, 7).filter(|identity| !identity.is_empty()).ok_or_else(|| {
        connection.abort();
        errors::answered_by_replica()
    })?;
    let now = number(row, 6).unwrap_or(0);
    let seat = text(row, 1).map(|record| SeatRow {
        record,
        write: text(row, 2).unwrap_or_default(),
        session: number(row, 3),
        is_alive: number(row, 8) == Some(1),
        written: number(row, 5).unwrap_or(0),
        now,
    });
    let floor: u64 = text(row, 4).and_then(|floor| floor.parse().ok()).unwrap_or(0);
    sql::reading(seat, mode, identity, floor.max(now.try_into().unwrap_or(0)))
}

/// Returns the last heartbeat of the session that holds a seat, if the session is alive.
fn heard(row: &Row) -> Option<Heard> {
    let session = number(row, 3).filter(|_| number(row, 8) == Some(1))?;
    Some(Heard { session, beat: number(row, 9)?, lease: number(row, 10)?.try_into().ok()? })
}

/// Writes seats: inserts, updates and renewals each share a batch. Each is a transaction of its own, so that the failure
/// of one does not affect the others.
pub(crate) async fn write(
    connection: &Arc<SqlConnection>,
    lease: Duration,
    writes: &[Write],
    to: &Answers<Swap>,
) -> Result<(), StoreError> {
    let sets = WriteSet::split(writes.iter().enumerate(), |_| want::new_number(), to);
    let answers = sets.iter().map(async |set| {
        let want = want::writes(set, None, |_| None).to_string();
        let batch = Batch { sql: seats::wait_for_rows(&seats::write(set.kind), lease), want, ..Batch::default() };
        let written = run(connection, batch).await;
        set.answer(written, to, |_, parts| Swap::Done { version: parts.version(), since: None, granted: None })
    });
    join_all(answers).await.into_iter().fold(Ok(()), Result::and)
}

/// Runs a batch that writes seats.
pub(crate) async fn run(connection: &Arc<SqlConnection>, batch: Batch) -> Result<Written, StoreError> {
    let batch = Batch { sql: connection.server.sql(&batch.sql), ..batch };
    let results = connection.run(batch).await.map_err(errors::Failed::after_a_write)?;
    let Some(outcome) = results.get(1) else {
        return Err(StoreError::unknown("SQL Server has not said what was written"));
    };
    let mut written = Written::default();
    for row in outcome {
        if let Some(version) = text(row, 0).filter(|_| number(row, 1) == Some(1)) {
            written.outcomes.insert(version, true);
        }
        written.identity = text(row, 2).unwrap_or_default();
    }
    Ok(written)
}

/// Lists all seats, of both modes. A name that no election can have is left out.
pub(crate) async fn list(connection: &Arc<SqlConnection>) -> Result<Vec<SeatName>, StoreError> {
    let results = match connection.run(Batch { sql: connection.server.sql(seats::LIST), ..Batch::default() }).await {
        Err(failed) if failed.is_missing_table() => Vec::new(),
        results => results?,
    };
    let names = results.iter().flatten().filter_map(|row| name(row, 0));
    Ok(names.filter_map(|name| SeatName::new(name).ok()).collect())
}

pub(crate) async fn forget(connection: &Arc<SqlConnection>, seat: &SeatName) -> Result<(), StoreError> {
    let (sql, want) = (connection.server.sql(seats::FORGET), hex(seat.as_str()));
    connection.run(Batch { sql, want, ..Batch::default() }).await?;
    Ok(())
}
