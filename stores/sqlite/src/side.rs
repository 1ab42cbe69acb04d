//! Files in the directory `FILE.d`: their permissions, and the processes that have locked them.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::StoreError;

use crate::database::BUSY;
use crate::errors;
use crate::place::Place;

/// Locks `FILE.d/opening`, so that one process at a time opens or closes the database. Waits at most
/// `max_wait`.
pub(crate) fn lock_opening(place: &Place, max_wait: Duration) -> Result<File, StoreError> {
    wait_for_opening(place, max_wait, |path| open(place, path), File::try_lock)
}

/// Shares the lock of `FILE.d/opening` with others that only read, so that no process opens or closes the database
/// meanwhile. Returns `None` if this user cannot read the file: then it cannot write the database, either.
pub(crate) fn share_opening(place: &Place) -> Result<Option<File>, StoreError> {
    match File::open(place.side.join("opening")) {
        Ok(_) => wait_for_opening(place, BUSY, |path| File::open(path), File::try_lock_shared).map(Some),
        Err(_) => Ok(None),
    }
}

fn wait_for_opening(
    place: &Place,
    max_wait: Duration,
    open: impl Fn(&Path) -> io::Result<File>,
    lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> Result<File, StoreError> {
    let path = place.side.join("opening");
    let began = Instant::now();
    loop {
        let file = open(&path).map_err(|error| errors::of_file(&path, error))?;
        match lock(&file) {
            Ok(()) if is_at(&file, &path) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if began.elapsed() < max_wait => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::refused(format!(
                    "cannot open {}: {} is locked by {}; wait for that process, or kill it if it hangs",
                    place.database.display(),
                    path.display(),
                    holders(&file)
                )));
            }
            Err(TryLockError::Error(error)) => return Err(errors::of_file(&path, error)),
        }
    }
}

/// Opens a file, and creates it if it is missing.
pub(crate) fn open(place: &Place, path: &Path) -> io::Result<File> {
    match File::options().read(true).append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match create(place, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(place, path),
            created => created,
        },
        opened => opened,
    }
}

/// Creates a file that must not exist, with access for exactly the users that can write the database: any user
/// that can read a file can lock it.
pub(crate) fn create(place: &Place, path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).append(true).create_new(true);
    let file = private(&mut options).open(path)?;
    share(place, &file, 0o666);
    Ok(file)
}

/// Creates the directory, or corrects its permissions. A user that cannot enter it cannot lock anything in it.
pub(crate) fn create_folder(place: &Place) -> io::Result<()> {
    match std::fs::create_dir(&place.side) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Never through a symbolic link: root would change the permissions of the link's target.
    #[cfg(unix)]
    {
        use rustix::fs::{Mode, OFlags, open};
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(folder) = open(&place.side, flags, Mode::empty()) {
            share(place, &folder.into(), 0o777);
        }
    }
    Ok(())
}

/// Returns whether this open file is still the one at this path.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), std::fs::metadata(path)), (Ok(one), Ok(other)) if id(&one) == id(&other))
}

/// Returns numbers that tell files apart while they exist.
#[cfg(unix)]
pub(crate) fn id(file: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino())
}

/// On other systems, an open file cannot be replaced.
#[cfg(not(unix))]
pub(crate) fn id(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

#[cfg(unix)]
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Gives the permissions in `all` to the owner of the database, and to its group and to others if they can
/// write the database. Has no effect on a file of another user.
#[cfg(unix)]
fn share(place: &Place, file: &File, all: u32) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let mut mode = all & 0o700;
    if let Ok(database) = std::fs::metadata(&place.database) {
        let writers = database.mode() & 0o022;
        mode |= all & (writers << 1 | writers | writers >> 1);
        // SQLite does the same for its own files. Only root can change the owner of a file.
        let _ = fchown(file, Some(database.uid()), None);
        let _ = fchown(file, None, Some(database.gid()));
    }
    if file.metadata().is_ok_and(|now| now.mode() & 0o777 != mode) {
        let _ = file.set_permissions(PermissionsExt::from_mode(mode));
    }
}

#[cfg(not(unix))]
fn share(_: &Place, _: &File, _: u32) {}

/// Returns the processes that have locked this file, as far as `/proc` shows them.
pub(crate) fn holders(file: &File) -> String {
    let pids = file.metadata().map(|file| lock_holders(id(&file).1)).unwrap_or_default();
    let name = |pid: &u32| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    };
    match pids.iter().map(name).collect::<Vec<_>>() {
        none if none.is_empty() => "another process".to_owned(),
        names => names.join(", "),
    }
}

/// Returns the other processes that hold a `flock` lock on this inode, or this process if there is no other.
fn lock_holders(inode: u64) -> Vec<u32> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    // As in "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF". A line with "->" belongs to a process that
    // waits.
    let holder = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        (words.next() == Some("FLOCK")).then_some(())?;
        let pid = words.nth(2)?.parse().ok()?;
        (words.next()?.rsplit(':').next()?.parse() == Ok(inode)).then_some(pid)
    };
    let mut pids: Vec<u32> = locks.lines().filter_map(holder).collect();
    pids.sort_unstable();
    pids.dedup();
    if pids.len() > 1 {
        pids.retain(|pid| *pid != std::process::id());
    }
    pids
}
