//! Files of the database are removed, or renamed and renamed back, while candidates run.

use std::path::Path;
use std::time::Duration;

use tenure_sqlite::SqliteStore;
use tenure_testkit::fleet::{self, Fleet};
use tenure_testkit::servers::Folder;

const LEASE: Duration = Duration::from_millis(900);

#[test]
fn one_leads_at_a_time_without_the_shm_file() {
    disturbed(2, |files, _, _| files.remove(&["-shm"]));
}

#[test]
fn one_leads_at_a_time_without_the_wal_file() {
    disturbed(2, |files, _, _| files.remove(&["-wal"]));
}

#[test]
fn one_leads_at_a_time_without_the_wal_and_shm_files() {
    disturbed(2, |files, _, _| files.remove(&["-wal", "-shm"]));
}

#[test]
fn one_leads_at_a_time_without_the_database_and_its_files() {
    disturbed(2, |files, _, _| files.remove(&["", "-wal", "-shm"]));
}

#[test]
fn one_leads_at_a_time_when_files_are_renamed_away_and_back() {
    disturbed(2, |files, fleet, leader| {
        files.rename("", "-away");
        fleet.add();
        std::thread::sleep(LEASE / 2);
        files.rename("-away", "");
        std::thread::sleep(LEASE / 2);
        // The leader may not have noticed it, and may still lead.
        fleet.kill(leader);
    });
}

/// Lets candidates run, disturbs their files, starts another candidate and kills one, in each round. Each time
/// a candidate must lead with a higher token, and never two at once.
fn disturbed(rounds: usize, mut disturb: impl FnMut(&Files, &mut Fleet, u32)) {
    // Set `TENURE_TEST_LOSSES=200` for more rounds.
    let rounds = std::env::var("TENURE_TEST_LOSSES").map_or(rounds, |rounds| rounds.parse().unwrap());
    let folder = Folder::new("removed");
    let files = Files(folder.path().join("tenure.db").display().to_string());
    let mut fleet = Fleet::start(&files.0, 2);
    let mut last = fleet.leader_after(0);
    for _ in 0..rounds {
        disturb(&files, &mut fleet, last.process);
        fleet.add();
        last = fleet.leader_after(last.token);
        fleet.kill_oldest();
    }
    fleet.end();
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(LEASE, |path| SqliteStore::at(path));
}

/// The database file, and the two files that SQLite keeps next to it.
struct Files(String);

impl Files {
    fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.0));
        }
    }

    fn rename(&self, from: &str, to: &str) {
        for suffix in ["-wal", "-shm"] {
            let path = |end: &str| format!("{}{suffix}{end}", self.0);
            if Path::new(&path(from)).exists() {
                std::fs::rename(path(from), path(to)).expect("cannot rename the file");
            }
        }
    }
}
