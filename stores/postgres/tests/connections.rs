//! The number of connections that a process uses after events that only PostgreSQL has: locked and dropped
//! tables, and terminated backends. (The laws about faults count connections, too.)

mod common;

use std::time::{Duration, Instant};

use common::{LEASE, TestCandidate, acted_above, leading, runtime, stand};
use tenure_core::Token;
use tenure_postgres::{grants_sql, schema_sql};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::until;
use tenure_testkit::servers::{Postgres, connections};

/// The modes, with the connections that a leader and two followers use according to the README.
const MODES: [(&str, usize); 2] = [("?mode=lease", 3), ("?mode=session", 2 + 2 * 3)];

const PROCESSES: usize = 3;

/// The highest number of connections that a process has replaced but whose last statement still runs on the server.
const REPLACED: usize = 3;

#[test]
fn a_long_lock_on_a_table_leaves_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let (_detector, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            let peak = std::thread::scope(|scope| {
                let locked = scope.spawn(|| server.sql("BEGIN; LOCK TABLE tenure.seats; SELECT pg_sleep(8)"));
                peak(&server, || locked.is_finished())
            });
            println!("{mode}: at most {peak} connections while the table was locked");
            assert!(peak <= most + PROCESSES * REPLACED, "{mode}: {peak} connections");
            settles(&server, mode, most, &candidates).await;
        });
    }
}

#[test]
fn a_dropped_table_is_created_again_and_leaves_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let (_detector, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            for table in ["notes", "floors"] {
                server.sql(&format!("DROP TABLE tenure.{table}"));
                let exists = || server.sql(&format!("SELECT to_regclass('tenure.{table}') IS NOT NULL")) == "t";
                until("the table is created again", exists).await;
                settles(&server, mode, most, &candidates).await;
            }
        });
    }
}

#[test]
fn a_table_of_notes_that_cannot_be_created_again_costs_no_term_and_no_more_connections() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        server.sql("CREATE ROLE humble LOGIN");
        server.sql(&(schema_sql("tenure") + &grants_sql("tenure", "humble")));
        runtime().block_on(async {
            let url = format!("postgres://humble@{}/postgres{mode}", server.address());
            let (_detector, candidates) = stand_all(&url).await;
            let term = leading(&candidates).await.term().await;
            server.sql("DROP TABLE tenure.notes");
            let began = Instant::now();
            let peak = peak(&server, || began.elapsed() > 4 * LEASE);
            println!("{mode}: at most {peak} connections while a table was missing");
            assert!(peak <= most + PROCESSES * REPLACED, "{mode}: {peak} connections");
            assert!(term.is_current(), "{mode}: the term of the leader has ended");
            server.sql(&(schema_sql("tenure") + &grants_sql("tenure", "humble")));
            settles(&server, mode, most, &candidates).await;
        });
    }
}

#[test]
fn terminated_backends_leave_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let (_detector, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            for _ in 0..4 {
                server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'");
                settles(&server, mode, most, &candidates).await;
            }
        });
    }
}

// -------------------------------------------------------------------------------------------------

/// Starts a candidate for each process, and waits until one of them leads.
async fn stand_all(url: &str) -> (OverlapDetector, Vec<TestCandidate>) {
    let detector = OverlapDetector::new();
    let candidates: Vec<_> = (0..PROCESSES).map(|_| stand(url, "jobs", &detector)).collect();
    acted_above(&detector, Token::ZERO).await;
    (detector, candidates)
}

/// Returns the highest number of connections that the server has until `is_over` returns true.
fn peak(server: &Postgres, is_over: impl Fn() -> bool) -> usize {
    let mut peak = 0;
    while !is_over() {
        peak = peak.max(connections(server.port()));
        std::thread::sleep(Duration::from_millis(5));
    }
    peak
}

/// Waits until a candidate leads and the processes use at most `most` connections.
async fn settles(server: &Postgres, mode: &str, most: usize, candidates: &[TestCandidate]) {
    leading(candidates).await;
    let count = || connections(server.port());
    let is_settled = async {
        while count() > most {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(40), is_settled).await.is_err() {
        panic!("{mode}: {PROCESSES} processes use {} connections", count());
    }
}
