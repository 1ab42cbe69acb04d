//! What becomes of notes in the database.

mod common;

use std::time::Duration;

use common::{PATIENCE, runtime};
use tenure_core::{Board, DynNotes, NoteState, SeatName};
use tenure_postgres::PostgresStore;
use tenure_testkit::servers::{Postgres, PostgresSetup};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(1);

#[test]
fn what_a_dead_process_has_left_is_cleared_away_by_one_that_begins() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let notes: &dyn DynNotes = &store;
        for number in 0..20 {
            let seat = SeatName::new(format!("seat-{number}")).unwrap();
            notes.put_one(&Board::Candidates(seat.clone()), "dead", "{}", SHORT).await.unwrap();
            notes.put_one(&Board::Requests(seat.clone()), "dead", "{}", SHORT).await.unwrap();
            notes.put_one(&Board::Candidates(seat), "alive", "{}", LONG).await.unwrap();
        }
        notes.put_one(&Board::Processes, "dead", "{}", SHORT).await.unwrap();
        let left = || server.sql("SELECT count(*) FROM tenure.notes WHERE key LIKE 'dead%'");
        let (began, mut number) = (std::time::Instant::now(), 0);
        while left() != "0" {
            assert!(began.elapsed() < PATIENCE, "{} notes of a dead process are left", left());
            number += 1;
            let was = notes.put_one(&Board::Processes, &format!("process {number}"), "{}", LONG).await.unwrap();
            assert_eq!(was, NoteState::Absent);
        }
        assert_eq!(server.sql("SELECT count(*) FROM tenure.notes WHERE key = 'alive'"), "20");
    });
}

/// Every process says once a lease that it is there, and a note that is lost costs no more than another: none of them
/// waits for the disk.
#[test]
fn notes_do_not_wait_for_the_disk() {
    // Otherwise the server writes them soon after.
    let server = PostgresSetup::new().with("wal_writer_delay=10s").start();
    runtime().block_on(async {
        let store = PostgresStore::at(&server.url()).unwrap();
        let notes: &dyn DynNotes = &store;
        let is_ahead = || server.sql("SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()") == "t";
        let mut ahead = 0;
        for _ in 0..20 {
            notes.put_one(&Board::Processes, "one", "{}", LONG).await.unwrap();
            ahead += u32::from(is_ahead());
        }
        assert!(ahead >= 5, "20 calls were answered before they were on the disk only {ahead} times");
    });
}
