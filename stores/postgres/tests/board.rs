//! What becomes of announcements in the database.

mod common;

use std::time::Duration;

use common::{PATIENCE, runtime};
use tenure_core::{Attended, Board, Incarnation, Note, NoteKind, SeatName, SeatStore};
use tenure_postgres::PostgresStore;
use tenure_testkit::servers::{Postgres, PostgresSetup};

fn announcement(process: Incarnation) -> Note {
    Note {
        kind: NoteKind::Announcement,
        key: process.to_string(),
        value: "{}".into(),
        lifetime: Duration::from_secs(1),
    }
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn what_a_dead_process_has_announced_is_cleared_away_by_those_who_live() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let [dead, alive] = [1, 2].map(Incarnation::from_bits);
        assert_eq!(store.attend(dead, LONG).await.unwrap(), Attended::Anew);
        assert_eq!(store.attend(alive, LONG).await.unwrap(), Attended::Anew);
        for number in 0..20 {
            let seat = SeatName::new(format!("seat-{number}")).unwrap();
            store.put(&seat, &announcement(dead)).await.unwrap();
            store.put(&seat, &announcement(alive)).await.unwrap();
        }
        assert_eq!(store.attend(dead, Duration::from_millis(1)).await.unwrap(), Attended::Still);
        let began = std::time::Instant::now();
        while server.sql("SELECT count(*) FROM tenure.attending") != "1" {
            assert!(began.elapsed() < PATIENCE, "a dead process still stands in the table");
            assert_eq!(store.attend(alive, LONG).await.unwrap(), Attended::Still);
        }
        let left = server.sql("SELECT count(*), count(DISTINCT key), min(key) FROM tenure.notes");
        assert_eq!(left, format!("20|1|{alive}"));
    });
}

#[test]
fn what_is_announced_by_who_never_came_and_what_was_asked_too_long_ago_is_cleared_away() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let [never, alive] = [1, 2].map(Incarnation::from_bits);
        let seat = SeatName::new("seat").unwrap();
        store.put(&seat, &announcement(never)).await.unwrap();
        let request = Note { kind: NoteKind::Request, lifetime: Duration::from_millis(1), ..announcement(never) };
        store.put(&seat, &request).await.unwrap();
        assert_eq!(store.list(&seat, NoteKind::Announcement).await.unwrap(), []);
        let began = std::time::Instant::now();
        while server.sql("SELECT count(*) FROM tenure.notes") != "0" {
            assert!(began.elapsed() < PATIENCE, "notes that mean nothing stay for ever");
            store.attend(alive, LONG).await.unwrap();
        }
    });
}

#[test]
fn tables_from_before_there_were_announcements_are_completed() {
    let server = Postgres::start();
    runtime().block_on(async {
        let seat = SeatName::new("seat").unwrap();
        PostgresStore::at(&server.url()).unwrap().read(&seat).await.unwrap();
        server.sql("DROP TABLE tenure.attending");
        let store = PostgresStore::at(&server.url()).unwrap();
        assert_eq!(store.attend(Incarnation::from_bits(1), LONG).await.unwrap(), Attended::Anew);
    });
}

/// Every candidate attends, and a lost call costs no more than another: none of them waits for the disk.
#[test]
fn a_process_attends_without_waiting_for_the_disk() {
    // Otherwise the server writes it soon after.
    let server = PostgresSetup::new().with("wal_writer_delay=10s").start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let process = Incarnation::from_bits(1);
        store.attend(process, LONG).await.unwrap();
        store.put(&SeatName::new("seat").unwrap(), &announcement(process)).await.unwrap();
        let is_ahead = || server.sql("SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()") == "t";
        assert!(!is_ahead(), "an announcement is put once, so it is on the disk before the answer");
        let mut ahead = 0;
        for _ in 0..20 {
            assert_eq!(store.attend(process, LONG).await.unwrap(), Attended::Still);
            ahead += u32::from(is_ahead());
        }
        assert!(ahead >= 5, "20 calls were answered before they were on the disk only {ahead} times");
    });
}
