//! Temporary folders.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// A temporary folder. Dropping it removes the folder. If a test is killed, the next test removes its folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The path of a file that this process keeps locked. The lock is visible from other PID namespaces, too.
    lock: PathBuf,
    _locked: File,
}

impl Folder {
    /// Creates an empty folder that all users can enter, because some servers run as users of their own.
    ///
    /// # Panics
    /// If the temporary folder of the system is not writable.
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// Creates an empty folder in memory, if the system supports that. Use it for servers that wait for the disk at
    /// every write, in tests that kill the server but not the machine.
    ///
    /// # Panics
    /// If the folder is not writable.
    pub fn in_memory(name: &str) -> Self {
        match Path::new(MEMORY) {
            memory if memory.is_dir() => Self::below(memory, name),
            _ => Self::new(name),
        }
    }

    fn below(folder: &Path, name: &str) -> Self {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(remove_orphans);
        let path = folder.join(format!("{PREFIX}{}-{name}-{:08x}", std::process::id(), rand::random::<u32>()));
        let complain = |error: std::io::Error| -> File { panic!("{}: {error}", path.display()) };
        let lock = path.with_extension(LOCK);
        let locked = File::create(&lock).and_then(|file| file.lock().map(|()| file)).unwrap_or_else(complain);
        std::fs::create_dir(&path).unwrap_or_else(|error| drop(complain(error)));
        #[cfg(unix)]
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap_or_else(|error| drop(complain(error)));
        Self { path, lock, _locked: locked }
    }

    /// Returns the absolute path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        let _ = std::fs::remove_file(&self.lock);
    }
}

const MEMORY: &str = "/dev/shm";

const PREFIX: &str = "tenure-servers-";

/// The extension of the lock file beside each folder.
const LOCK: &str = "lock";

/// Removes the folders of dead processes, whose locks the kernel has freed.
fn remove_orphans() {
    let folders = [std::env::temp_dir(), MEMORY.into()];
    for entry in folders.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let lock = entry.path();
        let is_ours =
            entry.file_name().to_string_lossy().starts_with(PREFIX) && lock.extension() == Some(LOCK.as_ref());
        if is_ours && File::open(&lock).is_ok_and(|file| file.try_lock().is_ok()) {
            let folder = lock.with_extension("");
            super::postgres::remove_shared_memory(&folder);
            let _ = std::fs::remove_dir_all(&folder);
            let _ = std::fs::remove_file(&lock);
        }
    }
}
