//! Candidates in processes of their own, killed, stopped and asked to go, in turns.
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
use tenure_core::{Clock, Elections, Ended};
use tenure_sqlite::SqliteStore;

const LEASE: Duration = Duration::from_millis(900);
const ROUNDS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn whatever_happens_to_the_leader_another_takes_over_and_terms_never_overlap() {
    let folder =
        std::env::temp_dir().join(format!("tenure-processes-{}-{:08x}", std::process::id(), rand::random::<u32>()));
    std::fs::create_dir(&folder).unwrap();
    let mut fleet = Fleet { folder: folder.clone(), children: Vec::new() };
    for _ in 0..3 {
        fleet.add();
    }
    let mut last = fleet.leader_after(0);
    for round in 0..ROUNDS {
        let leader = fleet.children.iter().position(|child| child.id() == last.process).expect("it is one of ours");
        match round % 3 {
            0 => {
                fleet.signal(leader, Signal::KILL);
                fleet.children.remove(leader).wait().unwrap();
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
                let left = fleet.children.remove(leader).wait().unwrap();
                assert!(left.success(), "it did not leave in good order: {left}");
                fleet.add();
            }
        }
    }
    let lines = fleet.lines();
    drop(fleet);
    check(&lines);
    assert!(lines.last().unwrap().token > ROUNDS as u64);
    std::fs::remove_dir_all(&folder).unwrap();
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

#[test]
fn the_check_notices_two_at_once() {
    let line = |token, process, asked| Line { token, process, asked };
    check(&[line(1, 1, 10), line(2, 2, 20)]);
    for bad in [[line(1, 1, 30), line(2, 2, 20)], [line(1, 1, 10), line(1, 2, 20)]] {
        assert!(std::panic::catch_unwind(|| check(&bad)).is_err());
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
    folder: PathBuf,
    children: Vec<Child>,
}

impl Fleet {
    fn add(&mut self) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("TENURE_TEST_CHILD", &self.folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push(child);
    }

    fn signal(&self, child: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.children[child]), signal).unwrap();
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
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

    /// Waits for a line with a higher token than this.
    fn leader_after(&self, token: u64) -> Line {
        let began = Instant::now();
        loop {
            if let Some(line) = self.lines().into_iter().max_by_key(|line| line.token).filter(|line| line.token > token)
            {
                return line;
            }
            assert!(began.elapsed() < PATIENCE, "nobody leads after token {token}");
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

/// A candidate, if this process was started as one.
#[test]
fn child() {
    let Some(folder) = std::env::var_os("TENURE_TEST_CHILD") else { return };
    // Not to outlive the test, whatever becomes of it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let folder = Path::new(&folder);
    let mut log = OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let elections = Elections::new(SqliteStore::at(folder.join("tenure.db")));
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
