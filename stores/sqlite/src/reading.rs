//! Opens the database to read it, without the right to write and without creating a file.
//!
//! While a process has the database open, and after it was killed, there are a `-wal` and a `-shm` file. SQLite then
//! reads all three files, and takes locks that need only the right to read. Otherwise SQLite would have to create the
//! two files. But then the database file alone has the whole content, and no process writes it. So SQLite takes it for
//! a file that never changes (`immutable`), and copies it to memory.
//!
//! # Why no copy is torn
//!
//! A user that can read `FILE.d/opening` locks it meanwhile, so no process opens or closes the database. For all others:
//! a process writes to the database file only while there is a `-wal` file, which was not there before the copy. If it
//! is there after the copy, the copy is made again. If it was removed meanwhile, the process has written to the file,
//! and changed its time of modification: the time before was earlier than [`SETTLED`], and the kernel counts in shorter
//! steps.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};
use tenure_core::StoreError;

use crate::database::BUSY;
use crate::files::with;
use crate::place::Place;
use crate::{errors, side};

/// Later changes of a file that was last modified this long ago change its time of modification.
const SETTLED: Duration = Duration::from_millis(50);

/// Opens the database. A file that does not exist is an empty database. The lock that is returned must be held until the
/// connection is closed: SQLite shares the `-shm` file within a process, so a connection that opens it to read would
/// keep a connection that is opened later from writing.
pub(crate) fn open(place: &Place) -> Result<(Connection, Option<File>), StoreError> {
    let path = &place.database;
    let failed = |error| errors::of_reading(path, error);
    if place.is_vacant() {
        return Ok((Connection::open_in_memory().map_err(failed)?, None));
    }
    place.check()?;
    let stamp = || stamp(path).map_err(|error| errors::cannot_read(path).because(error));
    let opening = side::share_opening(place)?;
    let began = Instant::now();
    while began.elapsed() < BUSY {
        let before = stamp()?;
        if is_open(path) {
            let live = open_uri(path, "readonly_shm=1").map_err(failed)?;
            live.busy_timeout(BUSY).map_err(failed)?;
            // Reads from the files now: they may just have been removed.
            match live.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
                Err(_) if !is_open(path) => continue,
                opened => return opened.map(|()| (live, opening)).map_err(failed),
            }
        }
        let is_settled = before.2.is_none_or(|modified| modified.elapsed().map_or(true, |age| age >= SETTLED));
        if opening.is_none() && !is_settled {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let mut copy = Connection::open_in_memory().map_err(failed)?;
        let file = open_uri(path, "immutable=1").map_err(failed)?;
        let copied =
            Backup::new(&file, &mut copy).and_then(|backup| backup.run_to_completion(i32::MAX, Duration::ZERO, None));
        if !is_open(path) && stamp()? == before {
            return copied.map(|()| (copy, opening)).map_err(failed);
        }
    }
    Err(StoreError::refused(format!(
        "cannot read {}: other processes open and close it all the time; try again",
        path.display()
    )))
}

/// Returns whether content can be outside of the database file. A process that opens the database creates an empty
/// `-wal` file first, and a process that closes it empties that file first.
fn is_open(path: &Path) -> bool {
    std::fs::metadata(with(path, "-wal")).is_ok_and(|wal| wal.len() > 0) || with(path, "-shm").exists()
}

/// Opens the database with a parameter of SQLite's URIs.
fn open_uri(path: &Path, parameter: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let escaped = |byte: &u8| match byte {
        b'/' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    let path: String = path.as_os_str().as_encoded_bytes().iter().map(escaped).collect();
    Connection::open_with_flags(format!("file:{path}?{parameter}"), flags)
}

/// Returns what changes with every write to the file.
fn stamp(path: &Path) -> std::io::Result<((u64, u64), u64, Option<SystemTime>)> {
    let file = std::fs::metadata(path)?;
    Ok((side::id(&file), file.len(), file.modified().ok()))
}
