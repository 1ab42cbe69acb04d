//! Parts that stores over SQL databases share: seats and notes as rows, and seats that the locks of a session hold.
//!
//! The store has the statements, the argument why they are safe, and the table of the server's errors. This module has
//! what follows from them for each seat of a call:
//!
//! - A read: turn each row into a [`SeatRow`], and that into the answer ([`reading`]).
//! - A write with `mode=lease`: [`WriteSet::split`] says which seats share a statement. Run the statement of each set,
//!   and pass what it has written to [`WriteSet::answer`].
//! - The seats or notes of a statement as JSON, for databases that turn it into rows: [`want`].
//! - A driver whose dropped futures leave the connection unusable, or that does not notice its end: [`BatchConnection`].
//! - `mode=session`: implement [`LockServer`], and pass the engine's calls to [`SeatLocks`]. [`Connections`] has the
//!   connections of a store that offers both modes.

mod batches;
mod connections;
mod following;
mod locks;
pub mod notes;
mod rows;
pub mod want;

pub use batches::{BatchClient, BatchConnection, BatchError};
pub use connections::Connections;
pub use following::{Noticed, WAIT_SLICE};
pub use locks::{LockConnection, LockServer, LockSession, SeatLocks};
pub use rows::{RowWrite, SeatRow, WriteKind, WriteSet, Written, all_vacant, reading};

use serde::{Deserialize, Serialize};
use tenure_core::{SessionId, StoreError, Version};

/// How the database holds a seat for its leader. The README of the store compares the two modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A row that the leader renews holds the seat; its age is measured by the server's clock.
    #[default]
    Lease,
    /// A lock of the leader's session holds the seat. The server frees the lock when the session ends, so that another
    /// candidate takes over within milliseconds after the leader's process dies.
    Session,
}

/// The parts of a version: the number of the write, the identity of the data, and the session that holds the seat.
pub type VersionParts = crate::VersionParts<String, String, i64>;

/// Returns the session in a version, for `Store::session_of`.
pub fn session_of(version: &Version) -> Option<SessionId> {
    Some(SessionId::new(VersionParts::parse(version)?.session?.to_string()))
}

/// The names of the tables. The first one carries the [`MARK`].
pub const TABLES: [&str; 3] = ["seats", "floors", "notes"];

/// The version of the tables. The store refuses to work with newer tables, and does not change them.
pub const VERSION: u32 = 1;

/// The comment on the table of seats, followed by the version.
pub const MARK: &str = "Tenure, version ";

/// Rejects a table of another program, or of a newer version. `option` names another table, and `columns` are those that the
/// store uses.
///
/// # Errors
/// If the table lacks a column, or the comment on the table of seats (`mark`) has a newer version.
pub fn check_table(
    table: &str,
    option: &str,
    mark: Option<&str>,
    columns: &[&str],
    has_column: impl Fn(&str) -> bool,
) -> Result<(), StoreError> {
    if !columns.iter().all(|column| has_column(column)) {
        return Err(StoreError::denied(format!(
            "the table {table} was not created by Tenure; use another {option}, or drop the table"
        )));
    }
    let version = mark.and_then(|mark| mark.strip_prefix(MARK)).and_then(|version| version.parse::<u32>().ok());
    match version.filter(|version| *version > VERSION) {
        None => Ok(()),
        Some(version) => Err(StoreError::denied(format!(
            "the table {table} is of a newer version of Tenure (version {version}, supported up to {VERSION}); upgrade \
             this program"
        ))),
    }
}

/// Describes tables that are missing in a `place`, such as `schema tenure`, and that this `user` cannot create. `sql` creates
/// them; the error has it in one line, without comments.
pub fn cannot_create_tables(store: &str, place: &str, user: &str, why: &str, sql: &str) -> StoreError {
    let words = sql.lines().filter_map(|line| line.split(" --").next()).flat_map(str::split_whitespace);
    let sql = words.collect::<Vec<_>>().join(" ");
    StoreError::denied(format!(
        "tables are missing in {place} and this {user} cannot create them: {why}; ask an administrator to run the output of \
         `tenure schema {store}`: {sql}"
    ))
}
