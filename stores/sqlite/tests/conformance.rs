//! Every law, on a database in a temporary directory.

use std::path::PathBuf;

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_sqlite::SqliteStore;
use tenure_testkit::Subject;

fn main() {
    let folder = std::env::temp_dir().join(format!("tenure-laws-{}-{:08x}", std::process::id(), rand::random::<u32>()));
    std::fs::create_dir(&folder).expect("cannot create a temporary directory");
    tenure_testkit::conformance(File(folder.join("tenure.db")));
}

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = self.0.parent().map(std::fs::remove_dir_all);
    }
}

impl Subject for File {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(SqliteStore::at(&self.0))
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async move {
            let database = rusqlite::Connection::open(&self.0).expect("cannot open the database");
            database.busy_timeout(std::time::Duration::from_secs(10)).expect("cannot set the busy time-out");
            database.execute("DELETE FROM seats WHERE name = ?1", [seat.as_str()]).expect("cannot delete the row");
        }))
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(SqliteStore::at(self.0.with_extension("other"))))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(SqliteStore::at(self.0.join("not-a-folder/tenure.db"))))
    }
}
