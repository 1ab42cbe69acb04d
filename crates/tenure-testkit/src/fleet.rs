//! Candidates in processes of their own, killed, stopped and asked to go, in turns.
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
//! // Does nothing, but in the processes that `churn` starts.
//! #[test]
//! fn child() {
//!     fleet::child(LEASE, open);
//! }
//! ```
//!
//! Each writes a line to one log whenever its term is current: its token, and the moment, on the clock
//! that all processes of the machine share, at which it has asked. Nobody may have asked, and been
//! told yes, after another has begun with a higher token.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_core::{Clock, Elections, Ended, Store, Term};

use crate::servers::{Folder, PATIENCE};

/// Has three candidates of one election run over the store at this place, kills, stops and asks the
/// leader to go in turns, and checks that each time another takes over, and that no two ever led at
/// once. This program must have a test called `child` that calls [`child`].
///
/// # Panics
/// If they did, or nobody takes over.
pub fn churn(place: &str, rounds: usize) {
    let mut fleet = Fleet::start(place, 3);
    let mut last = fleet.leader_after(0);
    for round in 0..rounds {
        let leader = fleet.children.iter().position(|child| child.id() == last.process).expect("it is one of ours");
        match round % 3 {
            0 => {
                fleet.signal(leader, Signal::KILL);
                fleet.children.remove(leader).wait().expect("it is a child");
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
                let left = fleet.children.remove(leader).wait().expect("it is a child");
                assert!(left.success(), "it did not leave in good order: {left}");
                fleet.add();
            }
        }
    }
    assert!(fleet.end() > rounds, "there were fewer terms than leaders that went");
}

/// Runs as a candidate over the store at a place, if this process was started as one.
///
/// # Panics
/// If it does not leave in good order.
pub fn child<S: Store>(lease: Duration, open: impl FnOnce(&str) -> S) {
    let (Some(folder), Ok(place)) = (std::env::var_os(FOLDER), std::env::var(PLACE)) else { return };
    // Not to outlive the test, whatever becomes of it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let log = Path::new(&folder).join("log");
    let mut log = OpenOptions::new().create(true).append(true).open(log).expect("the log");
    let elections = Elections::new(open(&place));
    let election = elections.election("jobs").lease(lease).start().expect("it starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let work = election.run_whenever_leader(async |term| {
            loop {
                write_line(&mut log, &term);
                tokio::select! {
                    () = term.ending() => return Ok::<(), String>(()),
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

/// Candidates in processes of their own, ended with this whatever happens. This program must have a test
/// called `child` that calls [`child`].
#[derive(Debug)]
pub struct Fleet {
    folder: Folder,
    place: String,
    children: Vec<Child>,
}

/// A candidate was told at a moment that its term is current.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The token of its term.
    pub token: u64,
    /// Its process id.
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

    /// Ends all candidates and returns the number of terms there were.
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

    /// Kills the candidate with this process id (SIGKILL), if it was not killed before.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill(&mut self, process: u32) {
        if let Some(child) = self.children.iter().position(|child| child.id() == process) {
            let mut child = self.children.remove(child);
            let _ = child.kill();
            child.wait().expect("it is a child");
        }
    }

    /// Starts another candidate.
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
        kill_process(Pid::from_child(&self.children[child]), signal).expect("it is there");
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

    /// Waits until a candidate leads with a higher token than this.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn leader_after(&self, token: u64) -> Line {
        let began = Instant::now();
        loop {
            let last = self.lines().into_iter().max_by_key(|line| line.token);
            if let Some(line) = last.filter(|line| line.token > token) {
                return line;
            }
            if began.elapsed() > PATIENCE {
                check(&self.lines());
                panic!("nobody leads after token {token}");
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

/// No line may have been asked for after a line with a higher token was.
fn check(lines: &[Line]) {
    let mut sorted = lines.to_vec();
    sorted.sort_by_key(|line| line.asked);
    for pair in sorted.windows(2) {
        assert!(pair[0].token <= pair[1].token, "two at once: {:?} was still told yes after {:?}", pair[1], pair[0]);
        assert!(pair[0].token != pair[1].token || pair[0].process == pair[1].process, "one token for two: {pair:?}");
    }
}

fn write_line(log: &mut File, term: &Term) {
    let asked = Clock::system().now().as_nanos();
    if term.is_current() {
        // One write, so that lines of several processes do not mix.
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
