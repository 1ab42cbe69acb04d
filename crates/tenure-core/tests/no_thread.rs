//! A process that cannot start another thread for a while.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure_core::memory::MemoryStore;
use tenure_core::{Elections, Error};

const ROLE: &str = "TENURE_TEST_NO_THREAD";

/// Starts its own program again, because the limit applies to a whole process.
#[test]
fn without_threads_handlers_are_refused_and_checks_fail_and_other_elections_go_on() {
    if std::env::var_os(ROLE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), has_no_thread()).await.expect("the election goes on");
        });
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "without_threads_handlers_are_refused_and_checks_fail_and_other_elections_go_on"])
        .arg("--nocapture")
        .env(ROLE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn has_no_thread() {
    let elections = Elections::new(MemoryStore::new());
    let unchecked = elections.election("unchecked").start().unwrap();
    let term = unchecked.elected().await.unwrap();
    // A thread that has been started, but has not run yet, still needs memory. The thread that logs has run once its lines
    // are logged.
    assert!(tenure_core::log::flush(Duration::from_secs(60)));
    // Leaves no room for the stack of another thread.
    let before = getrlimit(Resource::As);
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let room = pages * rustix::param::page_size() as u64 + (1 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(room), ..before }).unwrap();
    let handled = || elections.election("handled").on_new_leader(|_| {}).start();
    assert!(matches!(handled(), Err(Error::Engine(_))));
    let checked =
        elections.election("checked").lease(Duration::from_millis(300)).health(async || true).start().unwrap();
    // The candidate is listed after its first check.
    let standing = loop {
        if let Some(candidate) = checked.candidates().await.unwrap().pop() {
            break candidate;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(!standing.healthy, "{standing:?}");
    assert!(term.is_current(), "another election lost its term");
    setrlimit(Resource::As, before).unwrap();
    handled().unwrap();
    checked.elected().await.unwrap();
    assert!(term.is_current(), "another election lost its term");
}
