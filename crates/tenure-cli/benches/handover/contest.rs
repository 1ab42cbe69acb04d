//! Candidates of one kind over one store or lock, each a process, which hand over to each other.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tenure_testkit::figures::number;

use super::kinds::Kind;
use super::probe::{PROBE, SOCKET, now};
use super::profile::Profile;

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its command ends.
    ByItself,
    /// The process that holds the lock is killed.
    Killed,
}

pub(crate) struct Contest {
    pub(crate) kind: Kind,
    pub(crate) profile: Profile,
    /// The number of commands that started before the one before them had ended.
    pub(crate) overlaps: u32,
    folder: PathBuf,
    listener: UnixListener,
    candidates: Vec<(String, Child)>,
    number: u32,
    leader: Option<Leader>,
}

/// A command that runs.
struct Leader {
    candidate: String,
    began: u64,
    reports: BufReader<UnixStream>,
}

/// How long to wait for the next command. A lock that was lost by mistake expires before.
const PATIENCE: Duration = Duration::from_secs(60);

impl Contest {
    pub(crate) fn start(kind: Kind) -> Self {
        let folder = std::env::temp_dir().join(format!("tenure-handover-{}-{}", std::process::id(), now()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let profile = Profile::new(folder.join("profile"));
        let mut contest =
            Self { kind, profile, overlaps: 0, folder, listener, candidates: Vec::new(), number: 0, leader: None };
        let usual = if contest.kind.is_profiled { 2 } else { 3 };
        (0..number("TENURE_BENCH_CANDIDATES", usual)).for_each(|_| contest.add());
        contest.await_leader();
        contest
    }

    fn add(&mut self) {
        self.number += 1;
        let name = format!("candidate-{}", self.number);
        let mut command = (self.kind.wrap)(&self.folder, &name);
        if self.kind.is_profiled {
            command.env("TENURE_PROFILE", self.profile.path());
        }
        command.arg(std::env::current_exe().unwrap()).arg(PROBE).arg(&self.folder).arg(&name);
        // The other tools print messages about locks that they have lost.
        command.stdin(Stdio::null()).stderr(if self.kind.is_peer { Stdio::null() } else { Stdio::inherit() });
        self.candidates.push((name, command.spawn().unwrap()));
    }

    /// Accepts the report of a command that has started, if there is one.
    fn accept(&mut self) -> bool {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("cannot accept a report: {error}"),
        };
        let mut reports = BufReader::new(stream);
        let line = read(&mut reports).expect("a command reports its start");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [began, is_alone, candidate] = words[..] else { panic!("an unexpected report: {line:?}") };
        self.overlaps += u32::from(is_alone != "true");
        self.leader = Some(Leader { candidate: candidate.to_owned(), began: began.parse().unwrap(), reports });
        true
    }

    fn await_leader(&mut self) {
        let since = Instant::now();
        while !self.accept() {
            assert!(since.elapsed() < PATIENCE, "no candidate of {} leads", self.kind.name);
            let mut source = [rustix::event::PollFd::new(&self.listener, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut source, Some(&rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 }));
        }
    }

    /// Ends the leader in this way, and returns how much later the next command has started.
    pub(crate) fn hand_over(&mut self, end: End) -> Duration {
        // Long enough for the candidate that came last to be idle. Another one waits for longer.
        std::thread::sleep(Duration::from_millis(300));
        // The leader can change when the machine is too busy to renew in time.
        while self.accept() {}
        let mut former = self.leader.take().expect("a leader");
        let place = self.candidates.iter().position(|(name, _)| *name == former.candidate).expect("its process");
        let (_, mut process) = self.candidates.remove(place);
        self.profile.begin_round();
        let killed = now();
        match end {
            End::ByItself => former.reports.get_mut().write_all(b"x").unwrap(),
            End::Killed => process.kill().unwrap(),
        }
        self.await_leader();
        let ended = match end {
            End::ByItself => read(&mut former.reports).expect("the time of its end").trim().parse().unwrap(),
            End::Killed => killed,
        };
        let began = self.leader.as_ref().expect("it was awaited").began;
        self.profile.end_round(ended, began);
        // A command that has outlived its wrapper ends now.
        drop(former);
        process.wait().unwrap();
        self.add();
        Duration::from_nanos(began.checked_sub(ended).expect("a command started before the one before it had ended"))
    }
}

fn read(reports: &mut BufReader<UnixStream>) -> Option<String> {
    reports.get_ref().set_nonblocking(false).ok()?;
    let mut line = String::new();
    reports.read_line(&mut line).ok().filter(|count| *count > 0).map(|_| line)
}

impl Drop for Contest {
    fn drop(&mut self) {
        for (_, process) in &mut self.candidates {
            let _ = process.kill();
            let _ = process.wait();
        }
        // Gives the guards time to kill the command and to exit.
        std::thread::sleep(Duration::from_millis(200));
        let _ = fs::remove_dir_all(&self.folder);
    }
}
