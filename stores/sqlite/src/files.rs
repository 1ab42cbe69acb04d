//! The files of a connection: the database, and its `-wal` and `-shm` files.
//!
//! SQLite keeps the latest commits in `-wal`, and the locks of its processes in `-shm`. If one of these files
//! is removed or replaced while a connection is open, that connection keeps using the file that has no name any
//! more, and the next process that opens the database creates a new one. The two processes then see neither
//! each other's commits nor each other's locks, so both can win the same seat.
//!
//! # Why all open connections use the same files
//!
//! Every connection holds a shared lock on `FILE.d/open`, from before SQLite opens the first of its files until
//! SQLite has closed the last one. That file contains the device and inode numbers of all three files.
//! Processes open and close the database one at a time (`FILE.d/opening`). Opening succeeds
//!
//! - always, if no other process holds the lock: no connection is open, so no open files can differ from the
//!   new ones;
//! - otherwise only if the three files at their paths are those in `FILE.d/open`, both before SQLite opens them
//!   and after. The inode of an open file is not given to another file, so equal numbers mean the same file.
//!   After opening, these files must also be among the open files of this process.
//!
//! SQLite itself removes `-wal` and `-shm` only when the last connection closes, which needs an exclusive lock
//! on the database. Checkpoints and truncation keep the inodes. So if files differ, another program has removed
//! or replaced them.
//!
//! # Why no leader remains on files that were removed
//!
//! Before each transaction, a connection checks that its files are in place. If they are not, the process makes
//! no further transaction, but it keeps its lock until the longest lease it has written, counted from its last
//! heartbeat, is over. By then its terms have ended, and until then no other process has opened the database.
//! Then it closes its connection. The last process to close copies the content of its `-wal` into the database.
//!
//! # Why tokens rise after a loss
//!
//! If a process is killed instead, the commits that were only in a removed `-wal` are lost with it. The next
//! process to open the database finds that it holds the lock alone, and that the files are not those in
//! `FILE.d/open`, either before SQLite opens them or after. It keeps the old `-wal` file open meanwhile,
//! because the inode of a file that was removed and that no process has open can be given to the next one. So
//! it raises the floor of all tokens to the time in milliseconds. That is above all lost tokens, because
//! tokens count terms, and a term takes longer than a millisecond. A boot of the machine skips at most a
//! thousand tokens (`reservation.rs`), and takes longer than a second. The last connection to close, if all
//! files are in place, first copies its `-wal` into the database and then replaces the content of
//! `FILE.d/open` by [`CLOSED`], so that an orderly end does not raise the floor. From then on nothing is lost
//! with `-wal`, so a process that is killed before SQLite has removed its files does no harm. If the database
//! is missing or empty after that, it was removed while no process ran, and the floor is raised as well.
//! Raising the floor does no harm if nothing was lost, for example if another program opened the database
//! after a kill. All this relies on the machine's wall clock, which must not be set back across such a loss.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use tenure_core::StoreError;

use crate::place::Place;
use crate::{errors, side};

/// The suffixes that the names of the three files add to the name of the database.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// The content of `FILE.d/open` while no process has the database open, if the last one closed it in good
/// order.
const CLOSED: &str = "closed";

/// Appended to the content of `FILE.d/open` before a process opens the database after a loss. If it is killed before it has
/// raised the floor, the next process must do so, also if the new files have the numbers of the old ones.
const LOST: &str = "lost ";

/// The device and inode numbers of the three files.
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

/// A lock on `FILE.d/open`, which [`OpenLock::settle`] turns into [`Files`] once SQLite has opened its files. It
/// is created and settled under the same lock of `FILE.d/opening`.
pub(crate) struct OpenLock {
    database: PathBuf,
    path: PathBuf,
    lock: File,
    /// No other connection is open.
    alone: bool,
    /// The files of the other connections, or of the last ones.
    known: String,
    /// Data may be lost: the last connections used other files and did not close them, or they closed them and the
    /// database is gone.
    pub(crate) after_loss: bool,
    /// The `-wal` file that the last connections have left. While it is open, a new file does not get its inode.
    _wal: Option<File>,
}

impl OpenLock {
    /// Takes the lock on `FILE.d/open`, exclusive if possible and otherwise shared.
    ///
    /// # Errors
    /// If another process has files open that are no longer at their paths.
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
        let wal = if alone { sync_wal(&place.database)? } else { None };
        let is_lost = match known.as_str() {
            "" => false,
            CLOSED => std::fs::metadata(&place.database).map_or(true, |database| database.len() == 0),
            known => known != Ids::of(&place.database).to_string(),
        };
        let after_loss = alone && is_lost;
        if after_loss {
            lock.write_all(LOST.as_bytes()).map_err(failed)?;
        }
        let open_lock = Self { database: place.database.clone(), path, lock, alone, known, after_loss, _wal: wal };
        open_lock.check(&Ids::of(&open_lock.database))?;
        Ok(open_lock)
    }

    /// Returns the files that SQLite has opened. Files that are not those of the last connections were removed meanwhile, and
    /// data may be lost.
    ///
    /// # Errors
    /// If they are not the files of the other connections, or are not in place.
    pub(crate) fn opened(&mut self) -> Result<Ids, StoreError> {
        let ids = Ids::of(&self.database);
        self.check(&ids)?;
        let was_closed = self.known == CLOSED || self.is_first();
        self.after_loss |= self.alone && !was_closed && self.known != ids.to_string();
        if are_open(&ids) {
            return Ok(ids);
        }
        let shown = self.database.display();
        Err(StoreError::refused(format!("a file of {shown} was removed while the database was being opened; retrying")))
    }

    /// Returns whether no process has opened the database before.
    pub(crate) fn is_first(&self) -> bool {
        self.known.is_empty()
    }

    /// Records these files in `FILE.d/open`, and keeps a shared lock on it.
    pub(crate) fn settle(mut self, ids: Ids) -> Result<Files, StoreError> {
        if self.alone {
            let failed = |error| errors::of_file(&self.path, error);
            self.lock.set_len(0).map_err(failed)?;
            self.lock.write_all(ids.to_string().as_bytes()).map_err(failed)?;
            // No other process can take the lock in between, because this process still holds `FILE.d/opening`.
            self.lock.unlock().and_then(|()| self.lock.lock_shared()).map_err(failed)?;
        }
        Ok(Files { database: self.database, path: self.path, lock: self.lock, ids })
    }

    fn check(&self, ids: &Ids) -> Result<(), StoreError> {
        if self.alone || self.known == ids.to_string() {
            return Ok(());
        }
        let shown = self.database.display();
        Err(StoreError::refused(format!(
            "{shown}, {shown}-wal or {shown}-shm was removed or replaced while in use by {}; wait until that process has \
             closed it, which takes a lease, or kill the process if it hangs",
            side::holders(&self.lock)
        )))
    }
}

/// The files of an open connection.
pub(crate) struct Files {
    database: PathBuf,
    path: PathBuf,
    /// A lock shared with all other open connections.
    lock: File,
    ids: Ids,
}

impl Files {
    /// Returns the path of a file that is no longer in place, if there is one.
    pub(crate) fn missing(&self) -> Option<PathBuf> {
        let now = Ids::of(&self.database);
        let changed = (0..SUFFIXES.len()).find(|file| now.0[*file] != self.ids.0[*file]);
        let lock = || (!side::is_at(&self.lock, &self.path)).then(|| self.path.clone());
        changed.map(|file| with(&self.database, SUFFIXES[file])).or_else(lock)
    }

    /// Checks the files a last time, before the connection is closed. `in_turn` says whether this process holds
    /// `FILE.d/opening`. If it does not, another process may open the database before SQLite has removed its
    /// files (SQLite then keeps them), and `FILE.d/open` is not changed, because another process may be writing
    /// it. If a file is missing, other processes must wait until this connection is closed: neither side would
    /// see the writes of the other.
    ///
    /// Returns whether all files are in place and no other connection is open. The lock is exclusive then.
    pub(crate) fn close(&mut self, in_turn: bool) -> bool {
        let in_place = self.missing().is_none();
        if in_place {
            let _ = self.lock.unlock();
        }
        if !in_turn || !in_place {
            return false;
        }
        // No other process can open the database meanwhile, because this process holds `FILE.d/opening`.
        let is_last = self.lock.try_lock().is_ok();
        if !is_last {
            let _ = self.lock.lock_shared();
        }
        is_last
    }

    /// Records that the database was closed in good order: all commits are in the database file.
    pub(crate) fn mark_closed(&mut self) {
        let _ = self.lock.set_len(0).and_then(|()| self.lock.write_all(CLOSED.as_bytes()));
    }
}

/// Opens and syncs the `-wal` file that other connections have left, if there is one. SQLite shows a commit only after it was
/// synced, if it is to be synced at all. But after all connections are gone, it shows each commit that it finds in the file,
/// also one of a process that was killed just before it synced it.
fn sync_wal(database: &Path) -> Result<Option<File>, StoreError> {
    let path = with(database, "-wal");
    match File::options().write(true).open(&path).and_then(|wal| wal.sync_data().map(|()| wal)) {
        Ok(wal) => Ok(Some(wal)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(errors::of_file(&path, error)),
    }
}

pub(crate) fn with(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Returns whether this process has these files open. It does not open them to find out, because closing them
/// again would release SQLite's locks on them.
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

#[cfg(test)]
mod tests {
    use tenure_testkit::servers::Folder;

    use super::*;
    use crate::SqliteOptions;

    #[test]
    fn files_that_are_removed_while_the_database_is_being_opened_are_a_loss() {
        let folder = Folder::new("files");
        let place = Place::new(SqliteOptions { path: Some(folder.path().join("t.db")) });
        side::create_folder(&place).unwrap();
        let create = |suffix| File::create(with(&place.database, suffix)).unwrap();
        let _ = SUFFIXES.map(create);
        // As a process that was killed leaves it.
        std::fs::write(place.side.join("open"), Ids::of(&place.database).to_string()).unwrap();
        for removed in [None, Some("-wal")] {
            let mut open_lock = OpenLock::new(&place).unwrap();
            removed.iter().for_each(|suffix| std::fs::remove_file(with(&place.database, suffix)).unwrap());
            let _opened_by_sqlite = SUFFIXES.map(|suffix| {
                let options = File::options().create(true).truncate(false).write(true).clone();
                options.open(with(&place.database, suffix)).unwrap()
            });
            open_lock.opened().unwrap();
            assert_eq!(open_lock.after_loss, removed.is_some());
        }
        // A process that is killed before it has raised the floor leaves it to the next one.
        std::fs::write(place.side.join("open"), Ids::of(&place.database).to_string()).unwrap();
        assert!(!OpenLock::new(&place).unwrap().after_loss);
        std::fs::rename(with(&place.database, "-wal"), folder.path().join("away")).unwrap();
        assert!(OpenLock::new(&place).unwrap().after_loss);
        std::fs::rename(folder.path().join("away"), with(&place.database, "-wal")).unwrap();
        assert!(OpenLock::new(&place).unwrap().after_loss);
    }
}
