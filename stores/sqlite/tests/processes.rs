//! Candidates in separate processes, which are killed, stopped and asked to leave in turn.

use std::time::Duration;

use tenure_sqlite::SqliteStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Folder;

#[test]
fn whatever_happens_to_the_leader_another_takes_over_and_terms_never_overlap() {
    let folder = Folder::new("sqlite");
    fleet::churn(&folder.path().join("tenure.db").display().to_string(), 12);
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_millis(900), |path| SqliteStore::at(path));
}
