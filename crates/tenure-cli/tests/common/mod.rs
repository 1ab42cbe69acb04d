//! A world for one test: a folder, the processes started in it, and what they have written.
//!
//! Every process carries the world's mark in its environment, and so does all that descends from it:
//! that is how the test finds out who is left, and ends them, should it fail.

#![allow(dead_code, reason = "each test file uses its own part of it")]

pub(crate) mod everything;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Long enough for the slowest machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    mark: String,
    folder: PathBuf,
    store: Option<String>,
    /// How many stores there were so far, if each `tenure` has its own.
    stores: AtomicU32,
    no_cgroup: bool,
    nobody: bool,
}

impl World {
    /// Each `tenure` has a store of its own, so there is one candidate.
    pub(crate) fn alone() -> Self {
        Self::new(None)
    }

    /// All share one store, which outlives them.
    pub(crate) fn shared() -> Self {
        let mut world = Self::new(None);
        world.store = Some(format!("sqlite:{}", world.path("seats.db").display()));
        world
    }

    /// All use the store at this URL.
    pub(crate) fn on(url: &str) -> Self {
        Self::new(Some(url.to_owned()))
    }

    fn new(store: Option<String>) -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("world-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(format!("tenure-{mark}"));
        fs::create_dir_all(&folder).unwrap();
        Self { mark, folder, store, stores: AtomicU32::new(0), no_cgroup: false, nobody: false }
    }

    /// Has no `tenure` use a control group, as on a machine that has none to give.
    pub(crate) fn without_cgroup(mut self) -> Self {
        self.no_cgroup = true;
        self
    }

    /// Has every `tenure run` run as a user without privileges, if this test has any to drop.
    pub(crate) fn without_privileges(mut self) -> Self {
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o777)).unwrap();
        self.nobody = rustix::process::geteuid().is_root();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn store(&self) -> String {
        self.store.clone().unwrap_or_else(|| {
            let number = self.stores.fetch_add(1, Ordering::Relaxed);
            format!("sqlite:{}", self.path(&format!("seats-{number}.db")).display())
        })
    }

    /// The command `tenure` with these arguments, not started yet.
    pub(crate) fn tenure(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(&self.folder)
            .env("TENURE_STORE", self.store())
            .env("TENURE_TEST_MARK", &self.mark)
            .env("NO_COLOR", "1")
            .args(args)
            .stdin(Stdio::null());
        if self.no_cgroup {
            command.env("TENURE_TEST_NO_CGROUP", "1");
        }
        command
    }

    /// Runs `tenure` to its end.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.output_of(self.tenure(args))
    }

    /// Runs a command to its end, which must come.
    pub(crate) fn output_of(&self, mut command: Command) -> Output {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(command.output()));
        told.recv_timeout(PATIENCE).expect("the command to end in time").unwrap()
    }

    /// Starts `tenure run OPTIONS jobs -- sh -c SCRIPT`.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Running {
        let errors = fs::File::options().append(true).create(true).open(self.path("errors")).unwrap();
        self.run_with_stderr(options, script, errors.into())
    }

    /// Does the same, with this for standard error.
    pub(crate) fn run_with_stderr(&self, options: &[&str], script: &str, stderr: Stdio) -> Running {
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["jobs", "--", "sh", "-c", script]);
        let tenure = self.tenure(&args);
        // Tests that run in the background of a script are started with an interrupt ignored, and what is
        // ignored from the start stays so.
        let mut command = Command::new(if self.nobody { "setpriv" } else { "env" });
        if self.nobody {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env"]);
        }
        command.arg("--default-signal=INT,QUIT,HUP").arg(tenure.get_program()).args(tenure.get_args());
        for (name, value) in tenure.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        Running { child: command.spawn().unwrap() }
    }

    /// Starts a shell in the same surroundings.
    pub(crate) fn run_in_shell(&self, script: &str) -> Running {
        let tenure = self.tenure(&[]);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).current_dir(&self.folder).stdin(Stdio::null()).stderr(Stdio::null());
        shell.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running { child: shell.spawn().unwrap() }
    }

    /// Writes a script for others to run.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The lines that commands have written to the file `log`.
    pub(crate) fn log(&self) -> Vec<String> {
        self.lines("log")
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        // A line that is being written does not count.
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// Waits until commands have written so many lines.
    pub(crate) fn log_of(&self, lines: usize) -> Vec<String> {
        self.eventually(&format!("{lines} lines in the log"), || self.log().len() >= lines);
        self.log()
    }

    /// Waits until this is the case.
    pub(crate) fn eventually(&self, what: &str, mut is: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is() {
            if began.elapsed() > PATIENCE {
                panic!("waited in vain for {what}\nlog: {:?}\nerrors: {:?}", self.log(), self.lines("errors"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until nothing is left that was started in this world.
    pub(crate) fn eventually_empty(&self) {
        self.eventually("nothing to be left", || self.living().is_empty());
    }

    /// Everything alive that was started in this world.
    pub(crate) fn living(&self) -> Vec<Pid> {
        let mark = format!("TENURE_TEST_MARK={}", self.mark);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter_map(|entry| {
                let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
                let environment = fs::read(entry.path().join("environ")).ok()?;
                let marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
                (marked && is_alive(pid)).then_some(pid)
            })
            .collect()
    }
}

/// A command that tells of its start, and takes a lock on one file for as long as it lives, or tells that
/// another has it.
pub(crate) const PROBE: &str = "exec 9>> probe; flock -n 9 || echo overlap >> log
    echo start $TENURE_TERM $$ $TENURE_CANDIDATE >> log; exec sleep 1000";

impl World {
    /// The starts of probes so far. There must be no overlap, and every term must be above the last.
    pub(crate) fn starts(&self) -> Vec<Start> {
        let log = self.log();
        assert!(!log.iter().any(|line| line == "overlap"), "{log:#?}\n{:#?}", self.lines("errors"));
        let starts: Vec<Start> = log.iter().map(|line| Start::parse(line)).collect();
        assert!(starts.is_sorted_by(|one, next| one.token < next.token), "{starts:?}");
        starts
    }

    /// Waits for the start of this number, and returns it.
    pub(crate) fn start_number(&self, number: usize) -> Start {
        self.log_of(number);
        let starts = self.starts();
        assert_eq!(starts.len(), number, "{starts:?}");
        starts[number - 1].clone()
    }
}

/// Starts a candidate of this name with a probe for its command.
pub(crate) fn stand(world: &World, id: &str, options: &[&str]) -> Running {
    world.run(&[options, &["--candidate", id]].concat(), PROBE)
}

/// Who stands, the leader first.
pub(crate) fn candidates(world: &World) -> Vec<Value> {
    let listed = world.output(&["candidates", "--json", "jobs"]);
    json_of(&listed)["candidates"].as_array().cloned().unwrap_or_default()
}

/// The candidate of this name, if it stands.
pub(crate) fn candidate(world: &World, id: &str) -> Option<Value> {
    candidates(world).into_iter().find(|status| status["candidate"] == id)
}

#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) token: i64,
    pub(crate) pid: Pid,
    pub(crate) candidate: String,
}

impl Start {
    fn parse(line: &str) -> Self {
        assert!(line.starts_with("start "), "{line}");
        Self {
            token: number(line, 1),
            pid: pid(line, 2),
            candidate: line.split(' ').nth(3).unwrap_or_default().to_owned(),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let began = Instant::now();
        loop {
            let living = self.living();
            if living.is_empty() || began.elapsed() > PATIENCE {
                break;
            }
            for pid in living {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A `tenure run` that was started.
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Its guard.
    pub(crate) fn guard(&self, world: &World) -> Pid {
        let mut guard = None;
        world.eventually("the guard", || {
            guard = children(self.pid()).first().copied();
            guard.is_some()
        });
        guard.unwrap()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, world: &World) -> ExitStatus {
        let mut status = None;
        world.eventually("tenure to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) fn code(&mut self, world: &World) -> i32 {
        let status = self.wait(world);
        status.code().unwrap_or_else(|| panic!("ended by signal {:?}", status.signal()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// Whether the process is there, and not merely waiting to be reaped.
pub(crate) fn is_alive(pid: Pid) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether the process is stopped.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    state(pid) == Some('T')
}

fn state(pid: Pid) -> Option<char> {
    stat(&PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero())))?.first()?.chars().next()
}

pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            (stat(&entry.path())?.get(1)? == &parent && is_alive(pid)).then_some(pid)
        })
        .collect()
}

/// State, parent, process group, session and so on of a process.
pub(crate) fn stat(process: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The number after a word in a line such as `start 7 4711`.
pub(crate) fn number(line: &str, at: usize) -> i64 {
    let word = line.split(' ').nth(at).and_then(|word| word.parse().ok());
    word.unwrap_or_else(|| panic!("no number at {at} in {line:?}"))
}

pub(crate) fn pid(line: &str, at: usize) -> Pid {
    i32::try_from(number(line, at)).ok().and_then(Pid::from_raw).unwrap()
}

pub(crate) fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
