//! Candidates in processes of their own, killed, stopped and asked to go, in turns, in both modes.

use std::time::Duration;

use tenure_postgres::PostgresStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Postgres;

#[test]
fn leases_of_processes_never_overlap() {
    let server = Postgres::start();
    fleet::churn(&format!("{}?mode=lease", server.url()), 9);
}

#[test]
fn sessions_of_processes_never_overlap() {
    let server = Postgres::start();
    fleet::churn(&format!("{}?mode=session", server.url()), 9);
}

/// A candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_millis(1500), |url| PostgresStore::at(url).unwrap());
}
