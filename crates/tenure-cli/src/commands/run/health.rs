//! `--health-cmd`: a command that reports the health of this candidate.
//!
//! The health command runs under a guard of its own, like the main command. At the time-out, and whenever tenure is
//! gone, the guard kills the health command and everything it has started. All of its output is read, so that it does
//! not block, but only the end is kept, so that it does not fill the memory.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::io::Errno;
use tenure::{ElectionOptions, Report};
use tokio::net::unix::pipe::Receiver;

use crate::args::Job;
use crate::failure::Failure;
use crate::process::guard_handle::GuardHandle;
use crate::process::now;
use crate::process::plan::Plan;
use crate::process::wire::{Exit, GuardEvent, Order};

/// The number of bytes of output that are kept, from the end.
const KEPT: usize = 4096;

/// The number of bytes that are read at a time.
const CHUNK: usize = 16 * 1024;

/// How long after the time-out of a check its guard counts as failed. The engine waits four times as long, so that it
/// normally gets the reason and not only its own time-out.
const SLACK: Duration = Duration::from_millis(500);

/// The longest time that a guard which is stopped (SIGSTOP) during a check stays stopped.
const MAX_WAKE_INTERVAL: Duration = Duration::from_secs(1);

/// The metadata key of a candidate's health error.
const ERROR: &str = "error";

/// A health command. It is used on one thread.
pub(crate) struct HealthCommand {
    command: [OsString; 3],
    election: String,
    /// Known once the election has started.
    candidate: Arc<OnceLock<Arc<str>>>,
    timeout: Duration,
    least: f64,
    /// The guard, between two checks.
    guard: RefCell<Option<GuardHandle>>,
    verdict: Verdict,
}

/// The error of the last check, shared with the messages for people. Empty if the candidate is healthy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<Mutex<String>>);

impl Verdict {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Returns the error in a sentence.
    pub(crate) fn words(&self) -> String {
        let why = Some(self.text()).filter(|text| !text.is_empty());
        let why = why.unwrap_or_else(|| "the health check does not respond".to_owned());
        format!("the candidate is unhealthy: {why}")
    }

    /// Sets the error, and returns whether there was none before.
    fn set(&self, error: &str) -> bool {
        let mut current = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        std::mem::replace(&mut *current, error.to_owned()).is_empty()
    }
}

/// The way a check has ended.
enum Outcome {
    Exited(Exit),
    /// It timed out and was killed.
    TimedOut,
    NotExecuted(Errno),
}

/// The outcome of a check, and the end of its standard output and standard error.
type Done = (Outcome, String, String);

impl HealthCommand {
    /// Returns the health command of this election, if there is one.
    pub(crate) fn new(args: &Job, options: &ElectionOptions) -> Result<Option<Self>, Failure> {
        let Some(command) = options.health_command() else { return args.reject_health_options().map(|()| None) };
        let lease = options.lease.unwrap_or(ElectionOptions::DEFAULT_LEASE);
        let timeout = options.health_timeout.unwrap_or(lease * 2 / 15);
        if timeout.is_zero() {
            return Err(Failure::new("--health-timeout must not be 0; leave it out to scale it from the lease"));
        }
        Ok(Some(Self {
            command: ["sh".into(), "-c".into(), command.into()],
            election: args.election.clone(),
            candidate: Arc::default(),
            timeout,
            least: options.least_health()?.get(),
            guard: RefCell::new(None),
            verdict: Verdict::default(),
        }))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Returns the cell for the candidate's id. The first check waits for it, so set it once the election has started.
    pub(crate) fn candidate(&self) -> Arc<OnceLock<Arc<str>>> {
        self.candidate.clone()
    }

    /// Returns how long the engine waits for a check.
    pub(crate) fn engine_timeout(&self) -> Duration {
        self.timeout.saturating_add(4 * SLACK)
    }

    /// Runs the command once and returns its report.
    pub(crate) async fn check(&self) -> Report {
        let result = match self.run().await {
            Ok((outcome, out, err)) => evaluate(&outcome, &out, &err, self.timeout),
            Err(error) => Err(format!("cannot run the health command: {error}")),
        };
        let (report, error) = match result {
            Ok(score) if score < self.least => (
                score.into(),
                format!("the health command reports a score of {score}, below the minimum of {}", self.least),
            ),
            Ok(score) => (score.into(), String::new()),
            Err(error) => ((0.0, [(ERROR, error.clone())]).into(), error),
        };
        if self.verdict.set(&error) && !error.is_empty() {
            tracing::warn!(election = self.election, reason = error, "candidate is unhealthy");
        }
        report
    }

    async fn run(&self) -> io::Result<Done> {
        let kill_at = now().saturating_add(self.timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let overdue = tokio::time::Instant::now().checked_add(self.timeout.saturating_add(SLACK));
        let mut taken = self.guard.borrow_mut().take();
        loop {
            let is_new = taken.is_none();
            let mut guard = taken.take().map_or_else(|| self.start_guard(), Ok)?;
            let run = self.run_under(&mut guard, kill_at);
            let ended = match overdue {
                Some(overdue) => tokio::time::timeout_at(overdue, run).await.unwrap_or(Ok(None)),
                None => run.await,
            };
            if let Ok(Some(done)) = ended {
                self.guard.replace(Some(guard));
                return Ok(done);
            }
            guard.destroy().await;
            ended?;
            // A guard that was killed between two checks says nothing about the candidate's health: try a new one.
            if is_new || now() >= kill_at {
                return Err(io::Error::other("its guard was killed or does not respond"));
            }
        }
    }

    fn start_guard(&self) -> io::Result<GuardHandle> {
        let variables = [("TENURE_ELECTION", &*self.election), ("TENURE_CANDIDATE", &**self.candidate.wait())];
        GuardHandle::start_guard(&Plan::command(&self.command), &variables)
    }

    /// Runs the command, and returns when no process of it is left; `None` if the guard has failed.
    async fn run_under(&self, guard: &mut GuardHandle, kill_at: u64) -> io::Result<Option<Done>> {
        let dev_null = File::open("/dev/null")?;
        let ((mut out, its_out), (mut err, its_err)) = (Tail::of_pipe()?, Tail::of_pipe()?);
        let streams = [dev_null.as_fd(), its_out.as_fd(), its_err.as_fd()];
        if !guard.start(Order::Start { token: None, kill_at, grace: 0 }, streams, None) {
            return Ok(None);
        }
        drop((its_out, its_err));
        let mut wake = tokio::time::interval((self.timeout / 4).clamp(Duration::from_millis(1), MAX_WAKE_INTERVAL));
        let (mut timed_out, mut outcome) = (false, None);
        loop {
            tokio::select! {
                biased;
                event = guard.event() => match event {
                    None => return Ok(None),
                    // After the command has ended, this concerns only processes that it has left behind.
                    Some(GuardEvent::TimeUp) => timed_out |= outcome.is_none(),
                    Some(GuardEvent::Failed { errno }) => {
                        outcome = Some(Outcome::NotExecuted(Errno::from_raw_os_error(errno)));
                    }
                    Some(GuardEvent::Exited(exit)) => {
                        outcome = Some(Outcome::Exited(exit));
                        // Kills the processes that it has left behind.
                        if !guard.kill_at(0) {
                            return Ok(None);
                        }
                    }
                    Some(GuardEvent::Gone) => break,
                    Some(_) => {}
                },
                _ = wake.tick() => guard.wake(),
                () = out.read(), if !out.over => {}
                () = err.read(), if !err.over => {}
            }
        }
        let outcome = match outcome {
            Some(Outcome::Exited(Exit::Signal(_))) | None if timed_out => Outcome::TimedOut,
            Some(outcome) => outcome,
            None => return Ok(None),
        };
        Ok(Some((outcome, out.finish(), err.finish())))
    }
}

/// Returns the score of a check, or its error.
fn evaluate(outcome: &Outcome, out: &str, err: &str, timeout: Duration) -> Result<f64, String> {
    let last = |text: &str| text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(printable);
    let output = || last(err).or_else(|| last(out)).map(|line| format!(": {line}")).unwrap_or_default();
    match outcome {
        Outcome::Exited(Exit::Code(0)) => match last(out).and_then(|line| line.parse::<f64>().ok()) {
            None => Ok(1.0),
            Some(score) if (0.0..=1.0).contains(&score) => Ok(score),
            Some(score) => Err(format!("the health command reports a score of {score}; a score must be from 0 to 1")),
        },
        Outcome::Exited(Exit::Code(code)) => Err(format!("the health command exited with code {code}{}", output())),
        Outcome::Exited(Exit::Signal(signal)) => {
            Err(format!("the health command was killed by signal {signal}{}", output()))
        }
        Outcome::TimedOut => {
            let timeout = tenure::span::show(Duration::from_millis(timeout.as_millis().try_into().unwrap_or(u64::MAX)));
            Err(format!("the health command timed out after {timeout}{}", output()))
        }
        Outcome::NotExecuted(errno) => Err(format!("cannot start the health command: {errno}")),
    }
}

/// Shortens a line, and replaces its control characters, so that it can be shown to others.
fn printable(line: &str) -> String {
    const MAX: usize = 200;
    let cut = line.char_indices().nth(MAX).map_or(line, |(at, _)| &line[..at]);
    crate::commands::printable(cut)
}

/// Reads a pipe and keeps the end of its contents.
struct Tail {
    pipe: Receiver,
    kept: Vec<u8>,
    over: bool,
}

impl Tail {
    /// Creates a pipe, and returns its reader and its write end.
    fn of_pipe() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let pipe = Receiver::from_owned_fd(reader.into())?;
        Ok((Self { pipe, kept: Vec::new(), over: false }, writer.into()))
    }

    /// Waits for more data and reads it. Cancel safe: no data is lost if the future is dropped.
    async fn read(&mut self) {
        let mut bytes = [0; CHUNK];
        let read = match self.pipe.readable().await {
            Ok(()) => self.pipe.try_read(&mut bytes),
            Err(error) => Err(error),
        };
        match read {
            Ok(0) => self.over = true,
            Ok(read) => self.keep(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.over = true,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT)..]);
        self.kept.drain(..self.kept.len().saturating_sub(KEPT));
    }

    /// Reads the rest of the pipe and returns the end of its contents.
    ///
    /// Reads from the descriptor itself: `try_read` answers `WouldBlock` until the reactor has seen that the pipe is
    /// readable, and the guard can report the end of the command before that. A score that is not read counts as 1.
    fn finish(mut self) -> String {
        let mut bytes = [0; CHUNK];
        // As much as a pipe can hold, and no more: all processes that could write to it are gone.
        for _ in 0..64 {
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.pipe, &mut bytes)) {
                Ok(0) | Err(_) => break,
                Ok(read) => self.keep(&bytes[..read]),
            }
        }
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate_exit(exit: Exit, out: &str, err: &str) -> Result<f64, String> {
        evaluate(&Outcome::Exited(exit), out, err, Duration::from_secs(2))
    }

    #[test]
    fn the_score_comes_from_the_exit_code_or_from_the_last_line() {
        for (out, score) in [("", 1.0), ("ok\n", 1.0), ("0.25\n", 0.25), ("hello\n 0.5 \n\n", 0.5), ("0.5\nok\n", 1.0)]
        {
            assert_eq!(evaluate_exit(Exit::Code(0), out, "0.1"), Ok(score), "{out:?}");
        }
        for out in ["", "1\n", "0.9\n"] {
            assert!(evaluate_exit(Exit::Code(3), out, "").is_err(), "{out:?}");
        }
    }

    #[test]
    fn a_score_out_of_range_is_an_error() {
        for out in ["2", "-0.1", "NaN", "inf", "1.000001", "1e300"] {
            let error = evaluate_exit(Exit::Code(0), out, "").unwrap_err();
            assert!(error.ends_with("; a score must be from 0 to 1"), "{error}");
        }
    }

    #[test]
    fn an_error_is_one_line_without_control_characters() {
        let error = evaluate_exit(Exit::Code(7), "out\n", "first\nno \x1b[31mdisk\n").unwrap_err();
        assert_eq!(error, "the health command exited with code 7: no \u{fffd}[31mdisk");
        let error = evaluate_exit(Exit::Signal(9), "out\n", "").unwrap_err();
        assert_eq!(error, "the health command was killed by signal 9: out");
        let error = evaluate(&Outcome::TimedOut, "", &"x".repeat(10_000), Duration::from_secs(2)).unwrap_err();
        assert!(error.starts_with("the health command timed out after 2s: xxx") && error.len() < 300);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn output_that_the_reactor_has_not_seen_is_read_at_the_end() {
        use std::io::Write;

        let (tail, writer) = Tail::of_pipe().unwrap();
        File::from(writer).write_all(b"0.5\n").unwrap();
        assert_eq!(tail.finish(), "0.5\n");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn only_the_end_is_kept() {
        use std::io::Write;

        let (mut tail, writer) = Tail::of_pipe().unwrap();
        let writing = std::thread::spawn(move || {
            let mut writer = File::from(writer);
            for _ in 0..1000 {
                writer.write_all(&[b'x'; 1000]).unwrap();
            }
            writer.write_all(b"\n0.5\n").unwrap();
        });
        while !tail.over {
            tail.read().await;
            assert!(tail.kept.len() <= KEPT);
        }
        writing.join().unwrap();
        assert!(tail.finish().ends_with("x\n0.5\n"));
    }
}
