//! The environment of the demo: a temporary folder, and three candidates, each a `tenure run` process.

use std::fs;
use std::io::{self, BufRead, BufReader, PipeWriter, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::probe::{PROBE, Report};
use crate::process::shim::{Place, Shim};

/// An event of the demo.
pub(super) enum StageEvent {
    /// A command has started.
    Started(Report, Instant),
    /// The user has interrupted the demo.
    Interrupted,
}

pub(super) struct Stage {
    folder: PathBuf,
    lease: Duration,
    /// The pipe that probes write their reports to.
    reports: PipeWriter,
    pub(super) events: Receiver<StageEvent>,
    pub(super) candidates: Vec<Candidate>,
}

pub(super) struct Candidate {
    pub(super) name: &'static str,
    pid: Pid,
    pub(super) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    Leads(u64),
    Stopped,
    Gone,
}

impl Stage {
    /// Creates the folder and starts the candidates. The returned stream becomes readable when the demo is interrupted.
    pub(super) fn set(names: &[&'static str], lease: Duration) -> io::Result<(Self, UnixStream)> {
        let folder = std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let (reader, reports) = io::pipe()?;
        let (sender, events) = channel();
        listen_to_probes(reader, sender.clone());
        let interrupted = listen_to_signals(sender)?;
        let mut stage = Self { folder, lease, reports, events, candidates: Vec::new() };
        for name in names {
            let pid = stage.start(name)?;
            stage.candidates.push(Candidate { name, pid, state: State::Waits });
        }
        Ok((stage, interrupted))
    }

    /// Starts a candidate. It dies with this thread, so that a demo which is killed leaves no processes behind.
    fn start(&self, name: &str) -> io::Result<Pid> {
        let store = format!("sqlite:{}", self.folder.join("seats.db").display());
        let lease = tenure::span::show(self.lease);
        let probe = self.folder.join("probe");
        let args = ["/proc/self/exe", "run", "--quiet", "--store", &store, "--candidate", name, "--lease", &lease];
        let command = ["demo", "--", "/proc/self/exe", PROBE];
        let args = args.iter().chain(&command).map(Path::new).chain([probe.as_path()]);
        let shim = Shim::start(Path::new(""), args, Place::OwnGroup, |command| {
            for (variable, _) in std::env::vars_os() {
                let variable = variable.to_string_lossy().into_owned();
                if variable.starts_with("TENURE_") && !variable.starts_with("TENURE_TEST_") {
                    command.env_remove(variable);
                }
            }
            // Options from a tenure.toml in the current folder do not apply, either.
            command.current_dir(&self.folder);
        })?;
        let nothing = fs::File::options().read(true).write(true).open("/dev/null")?;
        shim.go(None, &[nothing.as_fd(), self.reports.as_fd(), nothing.as_fd()])?;
        Ok(shim.pid)
    }

    /// Starts a candidate again after it has ended.
    pub(super) fn restart(&mut self, at: usize) -> io::Result<()> {
        self.candidates[at].pid = self.start(self.candidates[at].name)?;
        self.candidates[at].state = State::Waits;
        Ok(())
    }
}

impl Candidate {
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// Waits until the candidate has ended.
    pub(super) fn wait(&mut self) {
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
        self.state = State::Gone;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for candidate in &self.candidates {
            candidate.signal(Signal::TERM);
            candidate.signal(Signal::CONT);
        }
        let began = Instant::now();
        for candidate in &self.candidates {
            while matches!(waitpid(Some(candidate.pid), WaitOptions::NOHANG), Ok(None)) {
                if began.elapsed() > Duration::from_secs(5) {
                    candidate.signal(Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn listen_to_probes(reader: io::PipeReader, sender: Sender<StageEvent>) {
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if let Some(report) = Report::parse(&line)
                && sender.send(StageEvent::Started(report, Instant::now())).is_err()
            {
                return;
            }
        }
    });
}

fn listen_to_signals(sender: Sender<StageEvent>) -> io::Result<UnixStream> {
    let (mut reader, writer) = UnixStream::pair()?;
    let (interrupted, other_end) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    std::thread::spawn(move || {
        while reader.read_exact(&mut [0]).is_ok() {
            let _ = other_end.shutdown(Shutdown::Both);
            if sender.send(StageEvent::Interrupted).is_err() {
                return;
            }
        }
    });
    Ok(interrupted)
}
