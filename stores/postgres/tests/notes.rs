//! Notes in the database: the cleanup of expired ones, and their durability.

mod common;

use std::time::Duration;

use common::{PATIENCE, runtime};
use tenure_core::{Board, DynNotes, NoteState, SeatName};
use tenure_postgres::PostgresStore;
use tenure_testkit::servers::{Postgres, PostgresSetup};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_new_process_deletes_the_expired_notes_of_dead_processes() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = PostgresStore::from_url(&server.url()).unwrap();
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

/// Every process writes its note once a lease, and a lost note is written again. So no write waits for the disk.
#[test]
fn notes_do_not_wait_for_the_disk() {
    // Keeps the server from flushing the notes to disk soon after it answers.
    let server = PostgresSetup::new().with("wal_writer_delay=10s").start();
    runtime().block_on(async {
        let store = PostgresStore::from_url(&server.url()).unwrap();
        let notes: &dyn DynNotes = &store;
        let is_ahead = || server.sql("SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()") == "t";
        let mut ahead = 0;
        for _ in 0..20 {
            notes.put_one(&Board::Processes, "one", "{}", LONG).await.unwrap();
            ahead += u32::from(is_ahead());
        }
        assert!(ahead >= 5, "only {ahead} of 20 calls were answered before their note was on disk");
    });
}
