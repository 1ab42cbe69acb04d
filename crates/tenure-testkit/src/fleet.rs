//! Candidates in separate processes that are killed, stopped and asked to leave, in turn.
//!
//! ```no_run
//! # use tenure_testkit::fleet;
//! # fn open(place: &str) -> tenure_core::memory::MemoryStore { panic!("{place}") }
//! # const LEASE: std::time::Duration = std::time::Duration::from_secs(1);
//! #[test]
//! fn terms_never_overlap() {
//!     fleet::churn("redis://localhost", 12);
//! }
//!
//! // Does nothing, except in the processes that `churn` starts.
//! #[test]
//! fn child() {
//!     fleet::child(LEASE, open);
//! }
//! ```
//!
//! Each candidate asks its term again and again whether it is current. If it is, the candidate writes a line to a
//! shared log: its token, and the moment *before* it asked, on the clock that all processes of the machine share. No
//! line may have a later moment than a line with a higher token.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_core::{Clock, Elections, Ended, Store, Term};

use crate::servers::{Folder, PATIENCE};

/// Runs three candidates of one election over the store at this place. Kills the leader, stops it or asks it to
/// leave, in turn. Checks each time that another candidate takes over, and that no two ever led at once. This program
/// must have a test with the name `child` that calls [`child`].
///
/// # Panics
/// If two candidates led at once, or no candidate takes over.
pub fn churn(place: &str, rounds: usize) {
    let mut fleet = Fleet::start(place, 3);
    let mut last = fleet.leader_after(0);
    for round in 0..rounds {
        let leader =
            fleet.children.iter().position(|child| child.id() == last.process).expect("a process of this fleet");
        match round % 3 {
            0 => {
                fleet.signal(leader, Signal::KILL);
                fleet.children.remove(leader).wait().expect("a child process");
                last = fleet.leader_after(last.token);
                fleet.add();
            }
            1 => {
                fleet.signal(leader, Signal::STOP);
                let stopped = last.process;
                last = fleet.leader_after(last.token);
                assert_ne!(last.process, stopped);
                fleet.signal(leader, Signal::CONT);
            }
            _ => {
                fleet.signal(leader, Signal::TERM);
                last = fleet.leader_after(last.token);
                let left = fleet.children.remove(leader).wait().expect("a child process");
                assert!(left.success(), "the candidate did not exit cleanly: {left}");
                fleet.add();
            }
        }
    }
    assert!(fleet.end() > rounds, "there were fewer terms than leaders that ended");
}

/// Runs a candidate over the store at the place that [`Fleet`] chose, if a fleet has started this process. Otherwise
/// returns at once.
///
/// # Panics
/// If the candidate does not start or end properly.
pub fn child<S: Store>(lease: Duration, open: impl FnOnce(&str) -> S) {
    let (Some(folder), Ok(place)) = (std::env::var_os(FOLDER), std::env::var(PLACE)) else { return };
    // The candidate dies with the test, however that ends.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let log = Path::new(&folder).join("log");
    let log = OpenOptions::new().create(true).append(true).open(log).expect("the log");
    let elections = Elections::new(open(&place));
    let election = elections.election("jobs").lease(lease).start().expect("it starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let work = election.run_once_per_term(async |term| {
            loop {
                write_line(&log, &term);
                tokio::select! {
                    () = term.ending() => return,
                    () = tokio::time::sleep(Duration::from_millis(2)) => {}
                }
            }
        });
        let (ended, left) = tokio::join!(work, elections.run_until_signal());
        assert_eq!(ended, Ended::Stopped);
        left.expect("signals can be listened to");
    });
}

const FOLDER: &str = "TENURE_TEST_FLEET";
const PLACE: &str = "TENURE_TEST_FLEET_STORE";

/// Candidates in separate processes. Dropping this kills them. The program must have a test with the name `child` that
/// calls [`child`].
#[derive(Debug)]
pub struct Fleet {
    folder: Folder,
    place: String,
    children: Vec<Child>,
}

/// A line of the log: a candidate's term was current at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The token of the candidate's term at that moment.
    pub token: u64,
    /// The process id of the candidate that wrote the line.
    pub process: u32,
    asked: u64,
}

impl Fleet {
    /// Starts this many candidates over the store at this place.
    pub fn start(place: &str, candidates: usize) -> Self {
        let mut fleet = Self { folder: Folder::new("fleet"), place: place.to_owned(), children: Vec::new() };
        (0..candidates).for_each(|_| fleet.add());
        fleet
    }

    /// Kills all candidates and returns the number of terms.
    ///
    /// # Panics
    /// If two candidates ever led at once, or with the same token.
    pub fn end(self) -> usize {
        let lines = self.lines();
        drop(self);
        check(&lines);
        let mut tokens: Vec<_> = lines.iter().map(|line| line.token).collect();
        tokens.dedup();
        tokens.len()
    }

    /// Kills the candidate that was started first (SIGKILL).
    ///
    /// # Panics
    /// If there is none.
    pub fn kill_oldest(&mut self) {
        self.kill(self.children[0].id());
    }

    /// Kills the candidate with this process id (SIGKILL). Does nothing if it was killed before.
    ///
    /// # Panics
    /// If the process cannot be killed or waited for.
    pub fn kill(&mut self, process: u32) {
        if let Some(child) = self.children.iter().position(|child| child.id() == process) {
            let mut child = self.children.remove(child);
            let _ = child.kill();
            child.wait().expect("a child process");
        }
    }

    /// Starts another candidate over the same store, in a new process.
    ///
    /// # Panics
    /// If this program cannot be started.
    pub fn add(&mut self) {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["child", "--exact", "--nocapture"])
            .env(FOLDER, self.folder.path())
            .env(PLACE, &self.place)
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts");
        self.children.push(child);
    }

    fn signal(&self, child: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.children[child]), signal).expect("a running process");
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| {
                let mut numbers = line.split(' ').map(|number| number.parse::<u64>().expect("a number"));
                let mut next = || numbers.next().expect("three numbers");
                Line { token: next(), process: next() as u32, asked: next() }
            })
            .collect()
    }

    /// Waits until a candidate leads with a higher token than this, and returns its first line in the log.
    ///
    /// # Panics
    /// If the wait times out.
    pub fn leader_after(&self, token: u64) -> Line {
        let began = Instant::now();
        loop {
            let last = self.lines().into_iter().max_by_key(|line| line.token);
            if let Some(line) = last.filter(|line| line.token > token) {
                return line;
            }
            if began.elapsed() > PATIENCE {
                check(&self.lines());
                panic!("timed out waiting for a leader with a token above {token}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Checks that no line has a later moment than a line with a higher token.
fn check(lines: &[Line]) {
    let mut sorted = lines.to_vec();
    sorted.sort_by_key(|line| line.asked);
    for pair in sorted.windows(2) {
        assert!(
            pair[0].token <= pair[1].token,
            "two leaders at once: {:?} was still current after {:?}",
            pair[1],
            pair[0]
        );
        assert!(
            pair[0].token != pair[1].token || pair[0].process == pair[1].process,
            "two processes with the same token: {pair:?}"
        );
    }
}

fn write_line(mut log: &File, term: &Term) {
    let asked = Clock::system().now().as_nanos();
    if term.is_current() {
        // One write per line, so that lines of several processes do not mix.
        log.write_all(format!("{} {} {asked}\n", term.token(), std::process::id()).as_bytes()).expect("the log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_notices_two_at_once() {
        let line = |token, process, asked| Line { token, process, asked };
        check(&[line(1, 1, 10), line(2, 2, 20)]);
        for bad in [[line(1, 1, 30), line(2, 2, 20)], [line(1, 1, 10), line(1, 2, 20)]] {
            assert!(std::panic::catch_unwind(|| check(&bad)).is_err());
        }
    }
}
