//! Candidates in separate processes, which are killed, stopped and asked to leave in turn; many that start at once.

use std::time::Duration;

use tenure_core::{SeatName, SeatStore, SingleSeat};
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

/// Many processes find no file at the same moment: one creates it, and all use it.
#[test]
fn a_new_database_can_be_opened_by_many_at_once() {
    for round in 0..20 {
        let folder = Folder::new(&format!("many-{round}"));
        let path = folder.path().join("t.db");
        let openers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let (store, seat) = (SingleSeat::new(SqliteStore::at(path)), SeatName::new("jobs").unwrap());
                    runtime.block_on(store.read(&seat)).map(|reading| reading.identity)
                })
            })
            .collect();
        let seen: Vec<_> = openers.into_iter().map(|opener| opener.join().unwrap().unwrap()).collect();
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    }
}
