//! The number of connections that a process uses, also after every fault.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Contender, LEASE, acted_above, leading, runtime, stand, within};
use tenure_core::{Board, NoteKind, SeatName, SeatStore, Token};
use tenure_postgres::{PostgresStore, grants_sql, schema_sql};
use tenure_testkit::Desk;
use tenure_testkit::contender::until;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Postgres, connections};

/// The modes, with the connections that a leader and two followers use as the README counts them.
const MODES: [(&str, usize); 2] = [("?mode=lease", 3), ("?mode=session", 2 + 2 * 3)];

const PROCESSES: usize = 3;

/// The most connections of a process that it has replaced, and whose last statement the server still runs.
const GIVEN_UP: usize = 3;

#[test]
fn a_server_that_is_paused_again_and_again_leaves_no_connections_behind() {
    for (mode, most) in MODES {
        let mut server = Postgres::start();
        runtime().block_on(async {
            let (desk, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            for _ in 0..4 {
                server.pause();
                tokio::time::sleep(LEASE).await;
                server.resume();
                settles(&server, mode, most, &candidates).await;
            }
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_table_that_is_locked_for_long_leaves_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let (_desk, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            let peak = std::thread::scope(|scope| {
                let locked = scope.spawn(|| server.sql("BEGIN; LOCK TABLE tenure.seats; SELECT pg_sleep(8)"));
                peak(&server, || locked.is_finished())
            });
            println!("{mode}: at most {peak} connections while the table was locked");
            assert!(peak <= most + PROCESSES * GIVEN_UP, "{mode}: {peak} connections");
            settles(&server, mode, most, &candidates).await;
        });
    }
}

#[test]
fn a_table_that_is_dropped_is_made_again_and_leaves_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let (_desk, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            for table in ["notes", "floors", "attending"] {
                server.sql(&format!("DROP TABLE tenure.{table}"));
                let is_there = || server.sql(&format!("SELECT to_regclass('tenure.{table}') IS NOT NULL")) == "t";
                until("the table is made again", is_there).await;
                settles(&server, mode, most, &candidates).await;
            }
        });
    }
}

#[test]
fn a_table_that_cannot_be_made_again_costs_no_more_connections() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        server.sql("CREATE ROLE humble LOGIN");
        server.sql(&(schema_sql("tenure") + &grants_sql("tenure", "humble")));
        runtime().block_on(async {
            let url = format!("postgres://humble@{}/postgres{mode}", server.address());
            let (_desk, candidates) = stand_all(&url).await;
            server.sql("DROP TABLE tenure.notes");
            let began = Instant::now();
            let peak = peak(&server, || began.elapsed() > 4 * LEASE);
            println!("{mode}: at most {peak} connections while a table was missing");
            assert!(peak <= most + PROCESSES * GIVEN_UP, "{mode}: {peak} connections");
            server.sql(&(schema_sql("tenure") + &grants_sql("tenure", "humble")));
            settles(&server, mode, most, &candidates).await;
        });
    }
}

#[test]
fn backends_that_are_terminated_leave_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let (_desk, candidates) = stand_all(&format!("{}{mode}", server.url())).await;
            for _ in 0..4 {
                server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'");
                settles(&server, mode, most, &candidates).await;
            }
        });
    }
}

#[test]
fn a_network_that_fails_leaves_no_connections_behind() {
    for (mode, most) in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let proxy = Proxy::start(server.address());
            let url = format!("postgres://postgres@{}/postgres{mode}", proxy.address());
            let (_desk, candidates) = stand_all(&url).await;
            for way in [Way::Up, Way::Down, Way::Up, Way::Down] {
                proxy.black_hole(way);
                tokio::time::sleep(LEASE).await;
                proxy.pass();
                settles(&server, mode, most, &candidates).await;
                proxy.reset();
                settles(&server, mode, most, &candidates).await;
            }
        });
    }
}

#[test]
fn a_connection_that_was_given_up_is_closed_though_it_answers_after_all() {
    let server = Postgres::start();
    runtime().block_on(async {
        let proxy = Proxy::start(server.address());
        let store = Arc::new(PostgresStore::at(&format!("postgres://postgres@{}/postgres", proxy.address())).unwrap());
        let seat = SeatName::new("jobs").unwrap();
        store.read(&seat).await.unwrap();
        proxy.delay(Way::Down, Duration::from_secs(2));
        let (slow, name) = (store.clone(), seat.clone());
        let answered = tokio::spawn(async move { slow.read(&name).await });
        // The second of these makes the connection doubtful, the next one begins to open another: all are given up
        // before anything comes back.
        for _ in 0..4 {
            let candidates = store.list(&seat, NoteKind::Announcement);
            assert!(tokio::time::timeout(Duration::from_millis(200), candidates).await.is_err(), "it was not slow");
        }
        answered.await.unwrap().expect("the first connection is alive after all");
        proxy.pass();
        within("only the connection that is used is left", async {
            let mut alone = 0;
            while alone < 20 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                store.read(&seat).await.unwrap();
                alone = if connections(server.port()) == 1 { alone + 1 } else { 0 };
            }
        })
        .await;
    });
}

// -------------------------------------------------------------------------------------------------

/// Candidates of as many processes, of which one leads.
async fn stand_all(url: &str) -> (Desk, Vec<Contender>) {
    let desk = Desk::new();
    let candidates: Vec<_> = (0..PROCESSES).map(|_| stand(url, "jobs", &desk)).collect();
    acted_above(&desk, Token::ZERO).await;
    (desk, candidates)
}

/// The most connections that the server has until something is over.
fn peak(server: &Postgres, is_over: impl Fn() -> bool) -> usize {
    let mut peak = 0;
    while !is_over() {
        peak = peak.max(connections(server.port()));
        std::thread::sleep(Duration::from_millis(5));
    }
    peak
}

/// Waits until a candidate leads and the processes use no more connections than they may.
async fn settles(server: &Postgres, mode: &str, most: usize, candidates: &[Contender]) {
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
