//! The environment of one test: a folder, the processes started in it, and their output.
//!
//! Every process and all of its descendants carry the world's mark in their environment. By this mark a test finds the
//! processes that are left, and kills them if it fails.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod all_commands;

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

/// The time-out of every wait: long enough for the slowest machine. A test that passes never waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    mark: String,
    folder: PathBuf,
    store: Option<String>,
    /// The number of stores so far, if each `tenure` has its own.
    stores: AtomicU32,
    no_cgroup: bool,
    unprivileged: bool,
}

impl World {
    /// A world in which each `tenure` has a store of its own, so every candidate is the only one.
    pub(crate) fn alone() -> Self {
        Self::new(None)
    }

    /// A world in which all candidates share one SQLite database.
    pub(crate) fn shared() -> Self {
        let mut world = Self::new(None);
        world.store = Some(format!("sqlite:{}", world.path("seats.db").display()));
        world
    }

    /// A world in which all candidates use the store at this URL.
    pub(crate) fn on(url: &str) -> Self {
        Self::new(Some(url.to_owned()))
    }

    fn new(store: Option<String>) -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("world-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(format!("tenure-{mark}"));
        fs::create_dir_all(&folder).unwrap();
        Self { mark, folder, store, stores: AtomicU32::new(0), no_cgroup: false, unprivileged: false }
    }

    /// Makes every `tenure` work without a control group, as on a machine where it cannot create one.
    pub(crate) fn without_cgroup(mut self) -> Self {
        self.no_cgroup = true;
        self
    }

    /// Runs every `tenure run` as a user without privileges, if this test runs as root.
    pub(crate) fn without_privileges(mut self) -> Self {
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o777)).unwrap();
        self.unprivileged = rustix::process::geteuid().is_root();
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

    /// Returns the command `tenure` with these arguments, not started yet.
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

    /// Runs `tenure` and returns its output.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.output_of(self.tenure(args))
    }

    /// Runs a command and returns its output. Panics if it does not end in time.
    pub(crate) fn output_of(&self, mut command: Command) -> Output {
        let (sender, output) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(command.output()));
        output.recv_timeout(PATIENCE).expect("the command did not end in time").unwrap()
    }

    /// Starts `tenure run OPTIONS jobs -- sh -c SCRIPT`.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Running {
        let errors = fs::File::options().append(true).create(true).open(self.path("errors")).unwrap();
        self.run_with_stderr(options, script, errors.into())
    }

    /// Starts the same command with this standard error.
    pub(crate) fn run_with_stderr(&self, options: &[&str], script: &str, stderr: Stdio) -> Running {
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["jobs", "--", "sh", "-c", script]);
        let tenure = self.tenure(&args);
        // Tests in the background of a script are started with SIGINT ignored, and `tenure` keeps ignoring signals
        // that it ignored from its start.
        let mut command = Command::new(if self.unprivileged { "setpriv" } else { "env" });
        if self.unprivileged {
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

    /// Starts a shell in the folder of this world, with the environment of `tenure`.
    pub(crate) fn run_in_shell(&self, script: &str) -> Running {
        let tenure = self.tenure(&[]);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).current_dir(&self.folder).stdin(Stdio::null()).stderr(Stdio::null());
        shell.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running { child: shell.spawn().unwrap() }
    }

    /// Writes an executable script.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Returns the lines that commands have written to the file `log`.
    pub(crate) fn log(&self) -> Vec<String> {
        self.lines("log")
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        // An incomplete last line does not count.
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// Waits until the file `log` has at least this many lines, and returns all of them.
    pub(crate) fn log_of(&self, lines: usize) -> Vec<String> {
        self.eventually(&format!("{lines} lines in the log"), || self.log().len() >= lines);
        self.log()
    }

    /// Waits until the condition is true.
    pub(crate) fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let began = Instant::now();
        while !condition() {
            if began.elapsed() > PATIENCE {
                panic!("timed out waiting for {what}\nlog: {:?}\nerrors: {:?}", self.log(), self.lines("errors"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until no process of this world is left.
    pub(crate) fn eventually_empty(&self) {
        self.eventually("all processes to end", || self.living().is_empty());
    }

    /// Returns all living processes of this world.
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

/// A command that logs its start and locks a file for as long as it lives. If another command holds the lock, it logs
/// an overlap.
pub(crate) const PROBE: &str = "exec 9>> probe; flock -n 9 || echo overlap >> log
    echo start $TENURE_TERM $$ $TENURE_CANDIDATE >> log; exec sleep 1000";

impl World {
    /// Returns the starts of probes so far. Panics if there was an overlap, or if a token did not rise.
    pub(crate) fn starts(&self) -> Vec<Start> {
        let log = self.log();
        assert!(!log.iter().any(|line| line == "overlap"), "{log:#?}\n{:#?}", self.lines("errors"));
        let starts: Vec<Start> = log.iter().map(|line| Start::parse(line)).collect();
        assert!(starts.is_sorted_by(|one, next| one.token < next.token), "{starts:?}");
        starts
    }

    /// Waits for the start with this number, and returns it. Panics if there are more.
    pub(crate) fn start_number(&self, number: usize) -> Start {
        self.log_of(number);
        let starts = self.starts();
        assert_eq!(starts.len(), number, "{starts:?}");
        starts[number - 1].clone()
    }
}

/// Starts a candidate with this id, whose command is a probe.
pub(crate) fn stand(world: &World, id: &str, options: &[&str]) -> Running {
    world.run(&[options, &["--candidate", id]].concat(), PROBE)
}

/// Returns the candidates as `tenure candidates` lists them, the leader first.
pub(crate) fn candidates(world: &World) -> Vec<Value> {
    let listed = world.output(&["candidates", "--json", "jobs"]);
    json_of(&listed)["candidates"].as_array().cloned().unwrap_or_default()
}

/// Returns the candidate with this id, if it is listed.
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
        if std::thread::panicking() {
            // What the candidates said and did is the only trace of a failure that does not happen again.
            for file in ["log", "errors"] {
                println!("-- {file}:\n{}", self.lines(file).join("\n"));
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A running `tenure`. Dropping it kills it.
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

    /// Returns the process id of its guard.
    pub(crate) fn guard(&self, world: &World) -> Pid {
        let mut guard = None;
        world.eventually("the guard", || {
            guard = children(self.pid()).first().copied();
            guard.is_some()
        });
        guard.unwrap()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self, world: &World) -> ExitStatus {
        let mut status = None;
        world.eventually("tenure to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits until it has ended, and returns its exit code.
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

/// Returns whether the process exists and is not a zombie.
pub(crate) fn is_alive(pid: Pid) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns whether the process is stopped.
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

/// Returns the fields of a process's `stat` file after its name: state, parent, process group, session and so on.
pub(crate) fn stat(process: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Returns the number at this position in a line such as `start 7 4711`.
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
