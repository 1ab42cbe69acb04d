//! Opening the database: ours and no other, and still the one at its path.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use tenure_core::{Identity, StoreError, Token};

use crate::files::{Claim, Files};
use crate::place::Place;
use crate::{errors, side};

/// "TENU": says whose file this is.
const APPLICATION: i32 = 0x5445_4e55;
/// The version of the schema. A file with a higher one is left alone.
const SCHEMA: i32 = 1;

/// How long to wait for another process to finish its write. Writes take milliseconds; one that takes
/// longer was stopped in the middle of it. The engine gives up sooner if its lease is short.
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// An open database. Its fields are dropped in this order: first SQLite closes its files, then others may
/// open new ones.
pub(crate) struct Database {
    pub(crate) connection: Connection,
    files: Files,
    turn: Option<File>,
    pub(crate) identity: Identity,
    /// Tokens of all seats stay above this.
    pub(crate) floor: Token,
    place: Place,
    durable: bool,
}

impl Database {
    /// Opens the database; waits this long at the most for other processes that do so.
    pub(crate) fn open(place: &Place, patience: Duration) -> Result<Self, StoreError> {
        place.prepare()?;
        let path = &place.database;
        // One at a time: SQLite does not wait for its turn to change the journal of a new file.
        let turn = side::turn(place, patience)?;
        let claim = Claim::new(place)?;
        // SQLite would let every user read it, and so lock it.
        match side::private(File::options().write(true).create_new(true)).open(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(errors::of_file(path, error));
            }
            _ => {}
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| errors::of_sqlite(path, error))?;
        prepare(&connection, path)?;
        let ids = claim.opened()?;
        let (identity, floor) =
            set_up(&connection, claim.after_loss).map_err(|error| errors::of_sqlite(path, error))?;
        // Only now: were this process killed before, the next one must raise the floor again.
        let files = claim.settle(ids)?;
        drop(turn);
        Ok(Self { connection, files, turn: None, identity, floor, place: place.clone(), durable: true })
    }

    /// The file that is no longer at its path, if there is one. A file that was removed or replaced can be
    /// written to, but other processes would not see it.
    pub(crate) fn missing(&self) -> Option<PathBuf> {
        self.files.missing()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.database
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
        act(&self.connection).map_err(|error| errors::of_sqlite(self.path(), error))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Opening waits for its turn, too: it finds all of the files, or none.
        self.turn = side::turn(&self.place, BUSY).ok();
        self.files.close(self.turn.is_some());
        if self.files.missing().is_some() {
            // A `-wal` that was renamed and comes back must not bring back what it contains.
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
    }
}

/// Has SQLite open its files. Refuses a database that is not ours, and leaves it as it is.
fn prepare(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let ours = (|| {
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "cache_size", -1024)?;
        // Otherwise statements are planned anew for every name that they are asked about.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // Looked at before anything is changed: a file of somebody else's stays as it is. In one
        // transaction, as somebody may be making the schema just now.
        connection.execute_batch("BEGIN")?;
        let header = header(connection)?;
        let ours = match header {
            (APPLICATION, version) => version <= SCHEMA,
            header => header == (0, 0) && is_empty(connection)?,
        };
        connection.execute_batch("COMMIT")?;
        if ours {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            is_empty(connection)?;
        }
        Ok((ours, header))
    })();
    match ours.map_err(|error| errors::of_sqlite(path, error))? {
        (true, _) => Ok(()),
        (false, (APPLICATION, version)) => Err(StoreError::denied(format!(
            "{} was written by a newer version of Tenure (schema {version}, known up to {SCHEMA}): upgrade this program",
            path.display()
        ))),
        _ => Err(errors::foreign(path)),
    }
}

/// Makes the schema in a new file, and raises the floor for tokens if some may have been lost. Returns the name
/// of this file, and the floor.
fn set_up(connection: &Connection, after_loss: bool) -> rusqlite::Result<(Identity, Token)> {
    let about = |name: &str| {
        let value = "SELECT value FROM about WHERE name = ?1";
        connection.query_row(value, [name], |row| row.get::<_, String>(0)).optional()
    };
    if header(connection)? == (0, 0) {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.execute_batch(SQL)?;
        let name = format!("{:032x}", rand::random::<u128>());
        connection.execute("INSERT INTO about (name, value) VALUES ('identity', ?1)", [&name])?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", SCHEMA)?;
        connection.execute_batch("COMMIT")?;
    }
    let mut floor = about("floor")?.and_then(|floor| floor.parse().ok()).unwrap_or_default();
    if after_loss {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        floor = u64::try_from(now).unwrap_or_default().max(floor);
        connection.execute("INSERT OR REPLACE INTO about (name, value) VALUES ('floor', ?1)", [floor.to_string()])?;
    }
    Ok((Identity::new(about("identity")?.unwrap_or_default()), Token::new(floor)))
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

    -- Requests to leaders, candidates that stand and processes that run, until they expire.
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
