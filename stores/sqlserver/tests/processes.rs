//! Candidates in separate processes, which are killed, paused or stopped in turn, in both modes, over the scripted peer.

mod peer;

use std::time::Duration;

use peer::Peer;
use tenure_sqlserver::SqlServerStore;
use tenure_testkit::fleet;

#[test]
fn terms_of_processes_never_overlap_in_lease_mode() {
    let peer = Peer::start();
    fleet::churn(&format!("{}&mode=lease", peer.url()), 9);
}

/// A paused leader's session is ended by a follower.
#[test]
fn terms_of_processes_never_overlap_in_session_mode() {
    let peer = Peer::start();
    fleet::churn(&format!("{}&mode=session", peer.url()), 9);
    assert!(peer.state().received.iter().any(|name| name == "kill"));
}

/// Runs a candidate, if this process was started as one.
#[test]
fn child() {
    fleet::child(Duration::from_millis(1500), |url| SqlServerStore::from_url(url).unwrap());
}
