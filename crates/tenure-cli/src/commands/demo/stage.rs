//! Where the demo happens: a folder, and the candidates in it, each a `tenure run` of its own.

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
use crate::process::shim::Shim;

/// What happens on the stage.
pub(super) enum Happening {
    /// A command has started.
    Started(Report, Instant),
    /// Somebody at the keyboard has seen enough.
    Interrupted,
}

pub(super) struct Stage {
    folder: PathBuf,
    lease: Duration,
    /// What probes write to.
    reports: PipeWriter,
    pub(super) happenings: Receiver<Happening>,
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
    /// Returns, beside the stage, what becomes readable once somebody has interrupted the demo.
    pub(super) fn set(names: &[&'static str], lease: Duration) -> io::Result<(Self, UnixStream)> {
        let folder = std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let (reader, reports) = io::pipe()?;
        let (tell, happenings) = channel();
        listen_to_probes(reader, tell.clone());
        let interrupted = listen_to_keyboard(tell)?;
        let mut stage = Self { folder, lease, reports, happenings, candidates: Vec::new() };
        for name in names {
            let pid = stage.start(name)?;
            stage.candidates.push(Candidate { name, pid, state: State::Waits });
        }
        Ok((stage, interrupted))
    }

    /// Starts a candidate. It dies with this thread, so that nothing is left of a demo that was killed.
    fn start(&self, name: &str) -> io::Result<Pid> {
        let store = format!("sqlite:{}", self.folder.join("seats.db").display());
        let lease = tenure::span::show(self.lease);
        let probe = self.folder.join("probe");
        let args = ["/proc/self/exe", "run", "--quiet", "--store", &store, "--candidate", name, "--lease", &lease];
        let command = ["demo", "--", "/proc/self/exe", PROBE];
        let args = args.iter().chain(&command).map(Path::new).chain([probe.as_path()]);
        let shim = Shim::start(Path::new(""), args, |command| {
            for (variable, _) in std::env::vars_os() {
                let variable = variable.to_string_lossy().into_owned();
                if variable.starts_with("TENURE_") && !variable.starts_with("TENURE_TEST_") {
                    command.env_remove(variable);
                }
            }
            // No options from a file that happens to lie here, either.
            command.current_dir(&self.folder);
        })?;
        let nothing = fs::File::options().read(true).write(true).open("/dev/null")?;
        shim.go(None, &[nothing.as_fd(), self.reports.as_fd(), nothing.as_fd()])?;
        Ok(shim.pid)
    }

    /// Starts a candidate again that is gone.
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

    /// Waits for its end.
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

fn listen_to_probes(reader: io::PipeReader, tell: Sender<Happening>) {
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if let Some(report) = Report::parse(&line)
                && tell.send(Happening::Started(report, Instant::now())).is_err()
            {
                return;
            }
        }
    });
}

fn listen_to_keyboard(tell: Sender<Happening>) -> io::Result<UnixStream> {
    let (mut reader, writer) = UnixStream::pair()?;
    let (interrupted, other_end) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    std::thread::spawn(move || {
        while reader.read_exact(&mut [0]).is_ok() {
            let _ = other_end.shutdown(Shutdown::Both);
            if tell.send(Happening::Interrupted).is_err() {
                return;
            }
        }
    });
    Ok(interrupted)
}
