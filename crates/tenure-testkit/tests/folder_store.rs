//! The store from the guide for store authors passes every law.

#[path = "../examples/folder_store/store.rs"]
mod store;

use std::path::PathBuf;
use std::time::Duration;

use tenure_core::DynStore;
use tenure_testkit::Subject;

use crate::store::FolderStore;

struct Folder(PathBuf);

impl Subject for Folder {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(FolderStore::new(&self.0))
    }

    fn lease(&self) -> Duration {
        // A disk can be slow to write.
        Duration::from_secs(2)
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(FolderStore::new(self.0.with_extension("other"))))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        // A path below a file cannot exist.
        let file = self.0.join("no folder");
        std::fs::create_dir_all(&self.0).and_then(|()| std::fs::write(&file, "")).ok()?;
        Some(Box::new(FolderStore::new(file.join("seats"))))
    }
}

fn main() {
    tenure_testkit::conformance(Folder(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("folder-store")));
}
