//! Opening the database: ours and no other, and still the one at its path.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tenure_core::{Identity, StoreError};

use crate::faults;
use crate::place::Place;

/// "TENU": says whose file this is.
const APPLICATION: i32 = 0x5445_4e55;
/// The version of the schema. A file with a higher one is left alone.
const SCHEMA: i32 = 1;

/// How long to wait for another process to finish its write. Writes take milliseconds; one that takes
/// longer was stopped in the middle of it. The engine gives up sooner if its lease is short.
const BUSY: Duration = Duration::from_secs(5);

/// An open database.
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    path: PathBuf,
    opened: Metadata,
    durable: bool,
}

impl Database {
    pub(crate) fn open(place: &Place) -> Result<Self, StoreError> {
        place.prepare()?;
        let path = &place.database;
        // One at a time: SQLite does not wait for its turn to change the journal of a new file.
        let gate = place.side.join("opening");
        let turn = File::options().create(true).append(true).open(&gate);
        let turn = turn.and_then(|file| file.lock().map(|()| file)).map_err(|error| faults::of_file(&gate, error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| faults::of_sqlite(path, error))?;
        let identity = set_up(&connection, path)?;
        drop(turn);
        let opened = std::fs::metadata(path).map_err(|error| faults::of_file(path, error))?;
        Ok(Self { connection, identity, path: path.clone(), opened, durable: true })
    }

    /// Whether this is still the file at its path. One that was removed or replaced can be written
    /// to, but nobody else would see it.
    pub(crate) fn is_in_place(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|now| is_same_file(&self.opened, &now))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what is committed from here on is on disk before that is told. Not in a transaction.
    pub(crate) fn set_durable(&mut self, durable: bool) -> Result<(), StoreError> {
        if durable != self.durable {
            let level = if durable { "FULL" } else { "NORMAL" };
            self.run(|connection| connection.pragma_update(None, "synchronous", level))?;
            self.durable = durable;
        }
        Ok(())
    }

    pub(crate) fn run<T>(&self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        act(&self.connection).map_err(|error| faults::of_sqlite(&self.path, error))
    }
}

#[cfg(unix)]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Elsewhere an open file cannot be replaced.
#[cfg(not(unix))]
fn is_same_file(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// Makes the schema in a new file, and refuses a file that is not ours. Returns the name of this file.
fn set_up(connection: &Connection, path: &Path) -> Result<Identity, StoreError> {
    let run = |result: rusqlite::Result<Identity>| result.map_err(|error| faults::of_sqlite(path, error));
    run((|| {
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "cache_size", -1024)?;
        // Otherwise statements are planned anew for every name that they are asked about.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // Looked at before anything is changed: a file of somebody else's stays as it is. In one
        // transaction, as somebody may be making the schema just now.
        connection.execute_batch("BEGIN")?;
        let ours = match header(connection)? {
            (APPLICATION, version) => version <= SCHEMA,
            header => header == (0, 0) && is_empty(connection)?,
        };
        connection.execute_batch("COMMIT")?;
        if !ours {
            return Ok(Identity::new(""));
        }
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        // Again, now that nobody else can: two may have found the file empty.
        if header(connection)? == (0, 0) {
            connection.execute_batch(SQL)?;
            let name = format!("{:032x}", rand::random::<u128>());
            connection.execute("INSERT INTO about (name, value) VALUES ('identity', ?1)", [&name])?;
            connection.pragma_update(None, "application_id", APPLICATION)?;
            connection.pragma_update(None, "user_version", SCHEMA)?;
        }
        connection.execute_batch("COMMIT")?;
        let name: String =
            connection.query_row("SELECT value FROM about WHERE name = 'identity'", [], |row| row.get(0))?;
        Ok(Identity::new(name))
    })())
    .and_then(|identity| {
        if !identity.as_str().is_empty() {
            return Ok(identity);
        }
        Err(match header(connection) {
            Ok((APPLICATION, version)) => StoreError::denied(format!(
                "{} was written by a newer version of Tenure (schema {version}, known up to {SCHEMA}): upgrade this program",
                path.display()
            )),
            _ => faults::foreign(path),
        })
    })
}

fn header(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let application = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok((application, version))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

const SQL: &str = "
    CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    -- One row a seat: the record as JSON, the nonce of the write, the session it is held on.
    CREATE TABLE seats (
        name TEXT PRIMARY KEY,
        record TEXT NOT NULL,
        nonce TEXT NOT NULL,
        session TEXT
    ) WITHOUT ROWID;
    CREATE INDEX seats_by_session ON seats (session);

    -- One row a process: its last heartbeat, counted and timed, which renews all of its seats.
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        kernel TEXT NOT NULL,
        clock TEXT NOT NULL,
        beats INTEGER NOT NULL,
        beat_at INTEGER NOT NULL
    ) WITHOUT ROWID;

    -- Tokens stay above these, also if a seat was removed.
    CREATE TABLE floors (name TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID;

    -- Until when each process that attends is there.
    CREATE TABLE attending (
        process TEXT PRIMARY KEY,
        clock TEXT NOT NULL,
        until INTEGER NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE notes (
        seat TEXT NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        clock TEXT NOT NULL,
        put_at INTEGER NOT NULL,
        lifetime INTEGER NOT NULL,
        PRIMARY KEY (seat, kind, key)
    ) WITHOUT ROWID;
";
