//! Five hundred elections in one process.

use std::time::{Duration, Instant};

use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::figures::{BenchTarget, FileTarget, ManyElections, Open, many_elections_child, scale};

const OPEN: Open = |url| Box::new(SqliteStore::new(SqliteOptions::from_url(url).expect("the URL is invalid")));

/// A long lease, because SQLite is not optimized in a debug build and the machine may be busy.
const LEASE: Duration = Duration::from_secs(9);

#[test]
fn five_hundred_elections_share_a_file_and_move_to_another_process_together() {
    scale::check_with(&FileTarget::new(), OPEN, 500, LEASE);
}

#[test]
fn one_heartbeat_keeps_all_seats_of_a_process() {
    let target = FileTarget::new();
    let path = target.url().trim_start_matches("sqlite:").to_owned();
    let mut process = ManyElections::start(&target.url(), 500, LEASE);
    process.elected();
    let beats = || -> i64 {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.busy_timeout(Duration::from_secs(10)).unwrap();
        file.query_row("SELECT sum(beats) FROM sessions", (), |row| row.get(0)).unwrap()
    };
    let (before, began) = (beats(), Instant::now());
    std::thread::sleep(LEASE);
    let (made, held) = (beats() - before, began.elapsed().as_secs_f64());
    assert_eq!(process.state().lost, 0);
    // Heartbeats are at least a quarter of a lease apart.
    assert!(
        made > 0 && (made as f64) < 4.0 * held / LEASE.as_secs_f64() + 2.0,
        "{made} heartbeats for 500 elections in {held:.1} s"
    );
    process.stop();
}

/// Runs many elections, if this process was started for that.
#[test]
fn many_elections() {
    many_elections_child(OPEN);
}
