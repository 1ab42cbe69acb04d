//! Temporary folders.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// A temporary folder, removed with this. What a killed test left behind is removed by the next one.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked for as long as this process lives, also as seen from another namespace.
    lock: PathBuf,
    _locked: File,
}

impl Folder {
    /// An empty folder that everybody may enter, as some servers run as users of their own.
    ///
    /// # Panics
    /// If the temporary folder cannot be written to.
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// One that is kept in memory where the system can: for servers that wait for the disk at every write,
    /// and are only ever killed, not switched off.
    ///
    /// # Panics
    /// If it cannot be written to.
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

    /// Where it is.
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

/// Beside each folder is a file of this kind.
const LOCK: &str = "lock";

/// Removes the folders whose process is gone: the kernel has freed their locks.
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
