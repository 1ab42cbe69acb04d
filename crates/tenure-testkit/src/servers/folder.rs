//! Temporary folders.

use std::path::{Path, PathBuf};
use std::sync::Once;

/// A temporary folder, removed with this. What a killed test left behind is removed by the next one.
#[derive(Debug)]
pub struct Folder(PathBuf);

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
        std::fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        #[cfg(unix)]
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const MEMORY: &str = "/dev/shm";

/// The id of the process that a folder belongs to follows.
const PREFIX: &str = "tenure-servers-";

fn remove_orphans() {
    let folders = [std::env::temp_dir(), MEMORY.into()];
    for entry in folders.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()).map(str::to_owned);
        if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
