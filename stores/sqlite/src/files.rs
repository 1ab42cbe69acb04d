//! The files that a connection is on: the database, and `-wal` and `-shm` beside it.
//!
//! SQLite keeps the last commits in `-wal`, and the locks of its processes in `-shm`. If one of these files is
//! removed or replaced while a connection is open, that connection goes on with the file that has no name any
//! more, and the next process that opens the database makes a new one. The two then neither see each other's
//! commits nor wait for each other's locks: both can win the same seat.
//!
//! # Why all open connections are on the same files
//!
//! Every connection holds a shared lock on `FILE.d/open`, from before SQLite opens the first of its files until
//! SQLite has closed the last. That file contains the device and inode number of all three. Processes open and
//! close one at a time (`FILE.d/opening`). Opening is
//!
//! - without conditions if nobody else holds the lock: no connection is open, so there are no files that could
//!   differ from the new ones;
//! - otherwise refused unless the three files at their paths are the ones in `FILE.d/open`, both before SQLite
//!   opens them and after. An inode that is open is not given to another file, so equal numbers mean the
//!   same file. After opening, these very files must be among the open files of this process.
//!
//! SQLite itself removes `-wal` and `-shm` only when the last connection closes, which needs an exclusive lock on
//! the database; checkpoints and truncation keep the inodes. So files that differ were removed by somebody else.
//!
//! # Why no leader is left on files that were removed
//!
//! Before each transaction a connection looks whether its files are in place. If they are not, the process
//! makes no transaction any more, but keeps its lock until the longest lease it has written, counted from its
//! last heartbeat, is over: its terms have ended by then, and no other process has opened the database before.
//! Then it closes its connection. The last one to close copies what is in its `-wal` to the database.
//!
//! # Why tokens rise after a loss
//!
//! A process that is killed instead takes the commits with it that were in a removed `-wal` alone. The next one
//! to open finds itself alone, but not on the files in `FILE.d/open`, and raises the floor for all tokens to
//! the time in milliseconds: tokens count terms, and a term takes longer than that. When the last connection is
//! closed with all files in place, `FILE.d/open` says so instead ([`CLOSED`]), so that this does not happen after an
//! orderly end. It does no harm if nothing was lost, as after a kill when another program has opened the database. A database that is then missing or empty was removed while no process ran, and the floor is raised as
//! well. This rests on the machine's wall clock: it must not be set back across such a loss.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tenure_core::StoreError;

use crate::place::Place;
use crate::{errors, side};

/// The names of the three files begin with that of the database.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// What `FILE.d/open` contains while no process has the database open, if the last one closed it in good order.
const CLOSED: &str = "closed";

/// The three files, each known by its device and inode number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids([Option<(u64, u64)>; 3]);

impl Ids {
    fn of(database: &Path) -> Self {
        Self(SUFFIXES.map(|suffix| std::fs::metadata(with(database, suffix)).ok().map(|file| side::id(&file))))
    }
}

impl std::fmt::Display for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|id| match id {
            Some((device, inode)) => write!(f, "{device}:{inode} "),
            None => f.write_str("- "),
        })
    }
}

/// A place among the open connections, to be [settled](Claim::settle) once SQLite has opened its files. Made and
/// settled in one turn.
pub(crate) struct Claim {
    database: PathBuf,
    path: PathBuf,
    lock: File,
    /// No other connection is open.
    alone: bool,
    /// The files that the others are on, or the last ones were.
    known: String,
    /// The last connections were on other files, and did not close them; or they did, and the database is gone.
    pub(crate) after_loss: bool,
}

impl Claim {
    /// # Errors
    /// If another process is on other files than those at their paths.
    pub(crate) fn new(place: &Place) -> Result<Self, StoreError> {
        let path = place.side.join("open");
        let failed = |error| errors::of_file(&path, error);
        let mut lock = side::open(place, &path).map_err(failed)?;
        let alone = match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        if !alone {
            lock.try_lock_shared().map_err(|error| failed(error.into()))?;
        }
        let mut known = String::new();
        lock.read_to_string(&mut known).map_err(failed)?;
        let is_lost = match known.as_str() {
            "" => false,
            CLOSED => std::fs::metadata(&place.database).map_or(true, |database| database.len() == 0),
            known => known != Ids::of(&place.database).to_string(),
        };
        let after_loss = alone && is_lost;
        let claim = Self { database: place.database.clone(), path, lock, alone, known, after_loss };
        claim.check(&Ids::of(&claim.database))?;
        Ok(claim)
    }

    /// The files that SQLite has opened.
    ///
    /// # Errors
    /// If they are not the ones that the others are on, or are not in place.
    pub(crate) fn opened(&self) -> Result<Ids, StoreError> {
        let ids = Ids::of(&self.database);
        self.check(&ids)?;
        if are_open(&ids) {
            return Ok(ids);
        }
        let shown = self.database.display();
        Err(StoreError::refused(format!("files of {shown} were removed while it was opened: trying again")))
    }

    /// Stays among the open connections, on these files.
    pub(crate) fn settle(mut self, ids: Ids) -> Result<Files, StoreError> {
        if self.alone {
            let failed = |error| errors::of_file(&self.path, error);
            self.lock.set_len(0).map_err(failed)?;
            self.lock.write_all(ids.to_string().as_bytes()).map_err(failed)?;
            // No other process takes the lock in between, as this is still our turn.
            self.lock.unlock().and_then(|()| self.lock.lock_shared()).map_err(failed)?;
        }
        Ok(Files { database: self.database, path: self.path, lock: self.lock, ids, clean: false })
    }

    fn check(&self, ids: &Ids) -> Result<(), StoreError> {
        if self.alone || self.known == ids.to_string() {
            return Ok(());
        }
        let shown = self.database.display();
        Err(StoreError::refused(format!(
            "{shown}, {shown}-wal or {shown}-shm was removed or replaced while in use by {}: wait until that process \
             has closed it, after its lease, or end it if it hangs",
            side::holders(&self.lock)
        )))
    }
}

/// The files that a connection is on.
pub(crate) struct Files {
    database: PathBuf,
    path: PathBuf,
    /// Shared with all other open connections.
    lock: File,
    ids: Ids,
    /// They were in place when the connection was closed.
    clean: bool,
}

impl Files {
    /// The file that is no longer at its path, if there is one.
    pub(crate) fn missing(&self) -> Option<PathBuf> {
        let now = Ids::of(&self.database);
        let changed = (0..SUFFIXES.len()).find(|file| now.0[*file] != self.ids.0[*file]);
        let lock = || (!side::is_at(&self.lock, &self.path)).then(|| self.path.clone());
        changed.map(|file| with(&self.database, SUFFIXES[file])).or_else(lock)
    }

    /// Looks a last time, before the connection is closed. If that is not in turn, others may open the database
    /// before SQLite has removed its files, which it then does not do; and what is written about the files is left
    /// as it is, as another process may be writing it. If a file is missing, others must wait until this connection
    /// is closed: what it still writes would not be seen by them, nor theirs by it.
    pub(crate) fn close(&mut self, in_turn: bool) {
        let in_place = self.missing().is_none();
        self.clean = in_turn && in_place;
        if !in_turn && in_place {
            let _ = self.lock.unlock();
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.clean && self.lock.unlock().is_ok() && self.lock.try_lock().is_ok() {
            let _ = self.lock.set_len(0).and_then(|()| self.lock.write_all(CLOSED.as_bytes()));
        }
    }
}

fn with(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Whether this process has these files open. They are not opened to find out: to close them again would free
/// the locks that SQLite has on them.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn are_open(ids: &Ids) -> bool {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return ids.0.iter().all(Option::is_some) };
    let open: Vec<_> = open.flatten().filter_map(|file| std::fs::metadata(file.path()).ok()).collect();
    ids.0.iter().all(|id| open.iter().any(|file| *id == Some(side::id(file))))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn are_open(ids: &Ids) -> bool {
    ids.0.iter().all(Option::is_some)
}
