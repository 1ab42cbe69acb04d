//! Candidates over one store, each a process, whose commands report when they start.

use std::fs;
use std::io::{self, BufRead, BufReader, PipeWriter};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tenure_testkit::figures::number;

/// The path of the command `tenure`.
pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// The first argument of a bench that makes it a program with the library.
pub(crate) const PROGRAM: &str = "__program";

/// Returns the number of rounds of each measurement.
pub(crate) fn rounds() -> u64 {
    number("TENURE_BENCH_ROUNDS", 40)
}

/// Three candidates of one kind: `tenure`, `flock`, or `library` for programs that use the library with a companion.
pub(crate) struct Scene {
    folder: PathBuf,
    kind: &'static str,
    /// The URL of the store for the next candidate.
    pub(crate) store: String,
    lease: String,
    reports: PipeWriter,
    starts: Receiver<(String, Instant)>,
    pub(crate) candidates: Vec<(String, Child)>,
    pub(crate) number: u32,
    /// Whether the errors of candidates are part of the bench, and not printed.
    pub(crate) expects_errors: bool,
    overlaps: u32,
}

impl Scene {
    #[allow(dead_code, reason = "a bench can add candidates one by one")]
    pub(crate) fn new(kind: &'static str, store: &str, lease: &str) -> Self {
        let mut scene = Self::empty(kind, store, lease);
        (0..3).for_each(|_| scene.add());
        scene
    }

    /// Returns a scene without candidates.
    pub(crate) fn empty(kind: &'static str, store: &str, lease: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tenure-bench-{}-{kind}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (reader, reports) = io::pipe().unwrap();
        let (sender, starts) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let _ = sender.send((line, Instant::now()));
            }
        });
        let (store, lease) = (store.to_owned(), lease.to_owned());
        Self {
            folder,
            kind,
            store,
            lease,
            reports,
            starts,
            candidates: Vec::new(),
            number: 0,
            expects_errors: false,
            overlaps: 0,
        }
    }

    pub(crate) fn add(&mut self) {
        self.number += 1;
        let name = format!("candidate-{}", self.number);
        let probe = self.folder.join("probe");
        if self.kind == "library" {
            let mut program = Command::new(std::env::current_exe().unwrap());
            program.args([PROGRAM, &self.store, &self.lease, &name]).arg(probe).stdin(Stdio::null());
            // Its companion reports every seat that it frees.
            program.stderr(Stdio::null());
            let program = program.stdout(self.reports.try_clone().unwrap()).spawn().unwrap();
            return self.candidates.push((name, program));
        }
        let mut command = if self.kind == "flock" {
            // With --no-fork, flock executes the command itself, so that killing the command frees the lock at once.
            let mut command = Command::new("flock");
            command.arg("--no-fork").arg(self.folder.join("lock")).env("TENURE_CANDIDATE", &name);
            command.env("TENURE_TERM", self.number.to_string());
            command
        } else {
            let mut command = Command::new(TENURE);
            command.args([
                "run",
                "--quiet",
                "--lease",
                &self.lease,
                "--candidate",
                &name,
                "--store",
                &self.store,
                "bench",
                "--",
            ]);
            command
        };
        command.args([TENURE, "__probe"]).arg(probe).stdin(Stdio::null());
        command.stdout(self.reports.try_clone().unwrap());
        if self.expects_errors {
            command.stderr(Stdio::null());
        }
        self.candidates.push((name, command.spawn().unwrap()));
    }

    pub(crate) fn assert_no_overlap(&self) {
        println!("overlaps: {}", self.overlaps);
        assert_eq!(self.overlaps, 0);
    }

    /// Waits for the next start of a command, and returns the candidate's index and the time of its report.
    pub(crate) fn next(&mut self) -> (usize, Instant) {
        let (line, at) = self.starts.recv_timeout(Duration::from_secs(60)).expect("the next leader");
        (self.started(&line), at)
    }

    fn started(&mut self, line: &str) -> usize {
        self.overlaps += u32::from(!line.starts_with("alone "));
        let leader = line.rsplit(' ').next().unwrap_or_default();
        self.candidates.iter().position(|(name, _)| name == leader).expect("a candidate of this scene")
    }

    /// Moves the leader to the front. The leader can change when the machine is too busy to renew in time.
    #[allow(dead_code, reason = "not every bench ends leaders")]
    pub(crate) fn find_leader(&mut self) {
        while let Ok((line, _)) = self.starts.try_recv() {
            let leader = self.started(&line);
            self.candidates.swap(0, leader);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for (_, child) in &mut self.candidates {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Gives the guards time to kill the commands and to exit.
        std::thread::sleep(Duration::from_millis(200));
        let _ = fs::remove_dir_all(&self.folder);
    }
}
