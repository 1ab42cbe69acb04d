//! Candidates in separate processes, which are killed, paused or stopped in turn, in both modes.

use std::time::Duration;

use tenure_mysql::MysqlStore;
use tenure_testkit::fleet;
use tenure_testkit::servers::Mysql;

#[test]
fn terms_of_processes_never_overlap_in_lease_mode() {
    let server = Mysql::start();
    fleet::churn(&format!("{}?mode=lease", server.url()), 9);
}

#[test]
fn terms_of_processes_never_overlap_in_session_mode() {
    let server = Mysql::start();
    fleet::churn(&format!("{}?mode=session", server.url()), 9);
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_millis(1500), |url| MysqlStore::from_url(url).unwrap());
}
