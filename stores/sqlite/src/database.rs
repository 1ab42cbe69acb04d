//! Opens the database. Refuses databases of other programs, and notices when a file is no longer in place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use tenure_core::{DataIdentity, StoreError, Token};

use crate::files::{Files, OpenLock};
use crate::place::Place;
use crate::{errors, reading, reservation, side};

/// "TENU": marks a file as a database of Tenure.
const APPLICATION: i32 = 0x5445_4e55;
/// The version of the schema. A file with a higher version is refused.
const SCHEMA: i32 = 1;

/// How long to wait for another process to finish its write. Writes take milliseconds, so a process that takes
/// longer has been stopped in the middle of one. With a short lease, the engine times out sooner.
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// An open database. Its fields are dropped in this order: SQLite closes its files first, and only then can
/// other processes open new ones.
pub(crate) struct Database {
    pub(crate) connection: Connection,
    /// `None` if the database was opened to be read.
    files: Option<Files>,
    /// The lock of `FILE.d/opening`, while this process closes the database, or only reads it.
    opening: Option<File>,
    pub(crate) identity: DataIdentity,
    /// Tokens of all seats must be above this one.
    pub(crate) floor: Token,
    /// Tokens up to this one are not issued again after a crash of the machine, although writes may be lost.
    pub(crate) reserved: Token,
    place: Place,
    durable: bool,
}

impl Database {
    /// Opens the database. Waits at most `max_wait` for other processes that are opening or closing it.
    pub(crate) fn open(place: &Place, max_wait: Duration) -> Result<Self, StoreError> {
        place.prepare()?;
        let path = &place.database;
        // One process at a time, because SQLite does not wait when it changes the journal mode of a new file.
        let opening = side::lock_opening(place, max_wait)?;
        let mut open_lock = OpenLock::new(place)?;
        // SQLite would create a file that every user can read, and therefore lock.
        match side::private(File::options().write(true).create_new(true)).open(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(errors::of_file(path, error));
            }
            _ => {}
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| errors::of_sqlite(path, error))?;
        prepare(&connection, path)?;
        let ids = open_lock.opened()?;
        let About { identity, floor, reserved } =
            set_up(&connection, &open_lock).map_err(|error| errors::of_sqlite(path, error))?;
        // Only now: if this process is killed earlier, the next one must raise the floor again.
        let files = open_lock.settle(ids)?;
        drop(opening);
        let place = place.clone();
        Ok(Self { connection, files: Some(files), opening: None, identity, floor, reserved, place, durable: true })
    }

    /// Opens the database to read it once. Creates nothing, and needs only the right to read. See `reading.rs`.
    pub(crate) fn open_to_read(place: &Place) -> Result<Self, StoreError> {
        let failed = |error| errors::of_reading(&place.database, error);
        let (connection, opening) = reading::open(place)?;
        let header = header(&connection).map_err(failed)?;
        let connection = match is_ours(&connection, header).map_err(failed)? {
            false => return Err(foreign(header, &place.database)),
            true if header == (0, 0) => {
                // The file is empty or does not exist yet.
                let empty = Connection::open_in_memory().map_err(failed)?;
                empty.execute_batch(SQL).map_err(failed)?;
                empty
            }
            true => connection,
        };
        let About { identity, floor, reserved } = about(&connection).map_err(failed)?;
        Ok(Self { connection, files: None, opening, identity, floor, reserved, place: place.clone(), durable: true })
    }

    /// Returns the path of a file that is no longer in place, if there is one. SQLite can still write to a file
    /// that was removed or replaced, but other processes do not see those writes.
    pub(crate) fn missing(&self) -> Option<PathBuf> {
        self.files.as_ref().and_then(Files::missing)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.database
    }

    /// Sets whether commits are on disk before they are answered. Must not be called in a transaction.
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

impl Database {
    /// Does what must be done before SQLite closes the connection.
    fn finish(&mut self) {
        let Some(files) = &mut self.files else { return };
        // Opening takes the same lock, so another process finds all of the files or none.
        self.opening = side::lock_opening(&self.place, BUSY).ok();
        let is_last = files.close(self.opening.is_some());
        if is_last || files.missing().is_some() {
            // A `-wal` file that was renamed and comes back must not bring back old content.
            let busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i32>(0));
            if is_last && busy == Ok(0) {
                files.mark_closed();
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Makes SQLite open its files. A database of another program or of a newer schema is refused and not changed.
fn prepare(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let ours = (|| {
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "cache_size", -1024)?;
        // Without this, SQLite plans statements anew for every value that is bound to them.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // Checked before anything is written, so that a file of another program stays as it is. One
        // transaction, because another process may be creating the schema at the same time.
        connection.execute_batch("BEGIN")?;
        let header = header(connection)?;
        let ours = is_ours(connection, header)?;
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
        (false, header) => Err(foreign(header, path)),
    }
}

/// Returns whether a file with this header is a database of Tenure with a known schema, or is empty.
fn is_ours(connection: &Connection, header: (i32, i32)) -> rusqlite::Result<bool> {
    match header {
        (APPLICATION, version) => Ok(version <= SCHEMA),
        header => Ok(header == (0, 0) && is_empty(connection)?),
    }
}

/// Creates the error for a database of another program or of a newer schema.
fn foreign(header: (i32, i32), path: &Path) -> StoreError {
    match header {
        (APPLICATION, version) => StoreError::denied(format!(
            "{} was written by a newer version of Tenure (schema {version}, known up to {SCHEMA}); upgrade this program",
            path.display()
        )),
        _ => errors::foreign(path),
    }
}

/// Creates the schema in a new file, raises the token floor if tokens may have been lost, and reserves tokens.
fn set_up(connection: &Connection, open_lock: &OpenLock) -> rusqlite::Result<About> {
    let is_new = header(connection)? == (0, 0);
    // The database can have been removed after the lock was taken.
    let after_loss = open_lock.after_loss || is_new && !open_lock.is_first();
    if is_new {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.execute_batch(SQL)?;
        let name = format!("{:032x}", rand::random::<u128>());
        connection.execute("INSERT INTO about (name, value) VALUES ('identity', ?1)", [&name])?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", SCHEMA)?;
        connection.execute_batch("COMMIT")?;
    }
    let mut about = about(connection)?;
    if after_loss {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        about.floor = about.floor.max(Token::new(u64::try_from(now).unwrap_or_default()));
    }
    // Otherwise a process of this boot has reserved tokens, and synced them.
    if about.reserved <= about.floor || after_loss {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        put_about(connection, "floor", &about.floor.to_string())?;
        about.reserved = reservation::reserve(connection, about.floor)?;
        connection.execute_batch("COMMIT")?;
    }
    Ok(about)
}

/// The identity and the tokens of the data, from the table `about`.
struct About {
    identity: DataIdentity,
    floor: Token,
    reserved: Token,
}

fn about(connection: &Connection) -> rusqlite::Result<About> {
    let floor = get_about(connection, "floor")?.and_then(|floor| floor.parse().ok()).unwrap_or_default();
    let (reserved, is_of_this_boot) = reservation::read(connection)?;
    // Wins of an earlier boot may be lost.
    let floor = Token::new(floor).max(if is_of_this_boot { Token::ZERO } else { reserved });
    Ok(About { identity: DataIdentity::new(get_about(connection, "identity")?.unwrap_or_default()), floor, reserved })
}

pub(crate) fn get_about(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT value FROM about WHERE name = ?1", [name], |row| row.get(0)).optional()
}

pub(crate) fn put_about(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<usize> {
    connection.execute("INSERT OR REPLACE INTO about (name, value) VALUES (?1, ?2)", [name, value])
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

    -- One row per seat: the record as JSON, the nonce of the write, the session that holds the seat.
    CREATE TABLE seats (
        name TEXT PRIMARY KEY,
        record TEXT NOT NULL,
        nonce TEXT NOT NULL,
        session TEXT
    ) WITHOUT ROWID;
    CREATE INDEX seats_by_session ON seats (session);

    -- One row per process: the count and time of its last heartbeat, which renews all of its seats.
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        kernel TEXT NOT NULL,
        clock TEXT NOT NULL,
        beats INTEGER NOT NULL,
        beat_at INTEGER NOT NULL
    ) WITHOUT ROWID;

    -- Tokens of a seat stay above these, also after the seat was removed.
    CREATE TABLE floors (name TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID;

    -- Requests to leaders, candidates that stand and processes that run, each until it expires.
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

#[cfg(test)]
mod tests {
    use tenure_testkit::servers::Folder;

    use super::*;
    use crate::SqliteOptions;

    fn place(folder: &Path) -> Place {
        Place::new(SqliteOptions { path: Some(folder.join("jobs.db")) })
    }

    fn open(folder: &Path) -> Database {
        Database::open(&place(folder), BUSY).unwrap()
    }

    /// Copies all files, as a process that is killed now leaves them. Locks are not copied.
    fn killed_now(folder: &Path) -> Folder {
        let copy = Folder::new("killed");
        std::fs::create_dir(copy.path().join("jobs.db.d")).unwrap();
        for inner in ["", "jobs.db.d"] {
            for file in std::fs::read_dir(folder.join(inner)).unwrap().flatten() {
                if file.metadata().unwrap().is_file() {
                    std::fs::copy(file.path(), copy.path().join(inner).join(file.file_name())).unwrap();
                }
            }
        }
        copy
    }

    #[test]
    fn after_a_crash_of_the_machine_tokens_continue_above_all_that_were_reserved() {
        let folder = Folder::new("crash");
        let database = open(folder.path());
        assert_eq!((database.floor, database.reserved), (Token::ZERO, Token::new(1000)));
        // Another process opens it in the same boot.
        let other = open(folder.path());
        assert_eq!((other.floor, other.reserved), (Token::ZERO, Token::new(1000)));
        let reserve = |token| database.run(|sql| reservation::reserve(sql, Token::new(token))).unwrap();
        assert_eq!(reserve(7000), Token::new(8000));
        // Such a token would leave no others.
        assert_eq!(reserve(u64::MAX), Token::new(8000));
        database.run(|sql| put_about(sql, "reserved", "8000 another-boot")).unwrap();
        drop((database, other));
        let status = Database::open_to_read(&place(folder.path())).unwrap();
        assert_eq!(status.floor, Token::new(8000));
        drop(status);
        for database in [open(folder.path()), open(folder.path())] {
            assert_eq!((database.floor, database.reserved), (Token::new(8000), Token::new(9000)));
        }
    }

    #[test]
    fn the_floor_after_a_loss_is_kept_although_higher_tokens_are_reserved() {
        let folder = Folder::new("losses");
        let database = open(folder.path());
        let reserved = Token::new(1 << 61);
        database.run(|sql| reservation::reserve(sql, reserved)).unwrap();
        drop(database);
        let lost = killed_now(folder.path());
        std::fs::write(lost.path().join("jobs.db.d/open"), "other files").unwrap();
        let floors = [open(lost.path()), open(lost.path())].map(|database| database.floor);
        assert!(floors[0] > Token::ZERO);
        assert_eq!(floors[0], floors[1]);
    }

    #[test]
    fn a_process_that_is_killed_while_it_closes_the_database_raises_no_floor() {
        let folder = Folder::new("closes");
        drop(open(folder.path()));
        let mut database = open(folder.path());
        database.run(|sql| sql.execute_batch("INSERT INTO floors (name, token) VALUES ('jobs', 7)")).unwrap();
        database.finish();
        let (before, has_wal) = (killed_now(folder.path()), folder.path().join("jobs.db-wal").exists());
        drop(database);
        let after = killed_now(folder.path());
        assert!(has_wal && !after.path().join("jobs.db-wal").exists());
        for folder in [before, after] {
            let database = open(folder.path());
            assert_eq!(database.floor, Token::ZERO);
            let token = database.run(|sql| sql.query_row("SELECT token FROM floors", [], |row| row.get::<_, i64>(0)));
            assert_eq!(token.unwrap(), 7);
        }
    }
}
