//! Candidates in processes of their own, killed, stopped and asked to go, in turns, in both modes.
//!
//! Each writes a line to one log whenever its term is current: its token, and the moment, on the clock
//! that all processes of the machine share, at which it has asked. Nobody may have asked, and been told
//! yes, after another has begun with a higher token.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_core::{Clock, Elections, Ended};
use tenure_postgres::PostgresStore;
use tenure_testkit::servers::{Folder, Postgres};

const LEASE: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn leases_of_processes_never_overlap() {
    whatever_happens_to_the_leader_another_takes_over("?mode=lease");
}

#[test]
fn sessions_of_processes_never_overlap() {
    whatever_happens_to_the_leader_another_takes_over("?mode=session");
}

fn whatever_happens_to_the_leader_another_takes_over(mode: &str) {
    let server = Postgres::start();
    let folder = Folder::new("candidates");
    let url = format!("{}{mode}", server.url());
    let mut fleet = Fleet { folder, url, children: Vec::new() };
    for _ in 0..3 {
        fleet.add();
    }
    let mut last = fleet.leader_after(0);
    let mut took: [Vec<Duration>; 3] = Default::default();
    for round in 0..ROUNDS {
        // All have seen who leads.
        std::thread::sleep(LEASE);
        let leader = fleet.children.iter().position(|child| child.id() == last.process).expect("it is one of ours");
        let signal = [Signal::KILL, Signal::STOP, Signal::TERM][round % 3];
        let sent = Clock::system().now().as_nanos();
        fleet.signal(leader, signal);
        let before = last;
        last = fleet.leader_after(before.token);
        took[round % 3].push(Duration::from_nanos(last.asked.saturating_sub(sent)));
        match signal {
            Signal::STOP => {
                assert_ne!(last.process, before.process);
                fleet.signal(leader, Signal::CONT);
            }
            signal => {
                let left = fleet.children.remove(leader).wait().unwrap();
                assert!(signal == Signal::KILL || left.success(), "it did not leave in good order: {left}");
                fleet.add();
            }
        }
    }
    let lines = fleet.lines();
    drop(fleet);
    check(&lines);
    println!(
        "{mode}: to the next one's work after a kill {:?}, a stop {:?}, a release {:?}",
        took[0], took[1], took[2]
    );
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

#[derive(Clone, Copy, Debug)]
struct Line {
    token: u64,
    process: u32,
    asked: u64,
}

/// Candidates, ended with this whatever happens.
struct Fleet {
    folder: Folder,
    url: String,
    children: Vec<Child>,
}

impl Fleet {
    fn add(&mut self) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("TENURE_TEST_CHILD", self.folder.path())
            .env("TENURE_TEST_URL", &self.url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push(child);
    }

    fn signal(&self, child: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.children[child]), signal).unwrap();
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| {
                let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
                let mut next = || numbers.next().unwrap();
                Line { token: next(), process: next() as u32, asked: next() }
            })
            .collect()
    }

    /// Waits for a line with a higher token than this, and returns the first of it.
    fn leader_after(&self, token: u64) -> Line {
        let began = Instant::now();
        loop {
            let lines = self.lines();
            if let Some(token) = lines.iter().map(|line| line.token).max().filter(|highest| *highest > token) {
                return lines.into_iter().find(|line| line.token == token).expect("it was just there");
            }
            assert!(began.elapsed() < PATIENCE, "nobody leads after token {token}");
            std::thread::sleep(Duration::from_millis(10));
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

/// A candidate, if this process was started as one.
#[test]
fn child() {
    let (Some(folder), Ok(url)) = (std::env::var_os("TENURE_TEST_CHILD"), std::env::var("TENURE_TEST_URL")) else {
        return;
    };
    // Not to outlive the test, whatever becomes of it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut log = OpenOptions::new().create(true).append(true).open(Path::new(&folder).join("log")).unwrap();
    let elections = Elections::new(PostgresStore::at(&url).unwrap());
    let election = elections.election("jobs").lease(LEASE).start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let work = async {
            election
                .run_whenever_leader(async |term| {
                    loop {
                        write_line(&mut log, &term);
                        tokio::select! {
                            () = term.ending() => return Ok::<(), String>(()),
                            () = tokio::time::sleep(Duration::from_millis(2)) => {}
                        }
                    }
                })
                .await
        };
        let (ended, left) = tokio::join!(work, elections.run_until_signal());
        assert_eq!(ended, Ended::Stopped);
        left.unwrap();
    });
}

fn write_line(log: &mut File, term: &tenure_core::Term) {
    let asked = Clock::system().now().as_nanos();
    if term.is_current() {
        // One write, so that lines of several processes do not mix.
        log.write_all(format!("{} {} {asked}\n", term.token(), std::process::id()).as_bytes()).unwrap();
    }
}
