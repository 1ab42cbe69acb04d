//! `--health-cmd`: a command that tells how well this candidate is.
//!
//! It runs under a guard of its own, as the command that leads does: at its time-out, and when tenure is
//! gone, however that came about, the guard kills it with everything it has started. Of what it prints
//! the end is kept, and all of it is read, so that it neither waits nor fills the memory.

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

use crate::args::Run;
use crate::failure::Failure;
use crate::process::keeper::Keeper;
use crate::process::now;
use crate::process::wire::{Exit, News};

/// So much of what it prints is kept, from the end.
const KEPT: usize = 4096;

/// So much longer than its time-out a check may take before its guard counts as failed, and longer still
/// before the engine stops waiting for it, and all that is known is that it was late.
const SLACK: Duration = Duration::from_millis(500);

/// How long a guard that somebody has stopped in mid-check stays so, at most.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// Where what is wrong with a candidate is told.
const ERROR: &str = "error";

/// A health command, to be asked on one thread.
pub(crate) struct HealthCommand {
    command: [OsString; 3],
    election: String,
    /// Known once the election has started.
    candidate: Arc<OnceLock<Arc<str>>>,
    timeout: Duration,
    least: f64,
    /// Its guard, between two checks.
    keeper: RefCell<Option<Keeper>>,
    verdict: Verdict,
}

/// What was wrong at the last check, in words, for who tells people about it. Nothing: it is well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<Mutex<String>>);

impl Verdict {
    pub(crate) fn words(&self) -> String {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Returns whether nothing was wrong before.
    fn set(&self, words: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        std::mem::replace(&mut *said, words.to_owned()).is_empty()
    }
}

/// How a check has ended.
enum Outcome {
    Exited(Exit),
    /// It was killed, as its time was up.
    Late,
    NotExecuted(Errno),
}

/// How it has ended, and the end of what it printed: to standard output, and to standard error.
type Done = (Outcome, String, String);

impl HealthCommand {
    /// The health command of this election, if there is one.
    pub(crate) fn new(args: &Run, options: &ElectionOptions) -> Result<Option<Self>, Failure> {
        let Some(command) = options.health_command() else { return args.needs_a_health_command().map(|()| None) };
        let lease = options.lease.unwrap_or(ElectionOptions::DEFAULT_LEASE);
        let timeout = options.health_timeout.unwrap_or(lease * 2 / 15);
        if timeout.is_zero() {
            return Err(Failure::new("a health command needs time: the health time-out must not be 0"));
        }
        Ok(Some(Self {
            command: ["sh".into(), "-c".into(), command.into()],
            election: args.election.clone(),
            candidate: Arc::default(),
            timeout,
            least: options.least_health()?.get(),
            keeper: RefCell::new(None),
            verdict: Verdict::default(),
        }))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// To be set as soon as the election has started; the first check waits for it.
    pub(crate) fn candidate(&self) -> Arc<OnceLock<Arc<str>>> {
        self.candidate.clone()
    }

    /// When the engine may stop waiting for an answer.
    pub(crate) fn latest(&self) -> Duration {
        self.timeout.saturating_add(4 * SLACK)
    }

    /// Asks it once.
    pub(crate) async fn ask(&self) -> Report {
        let judged = match self.run().await {
            Ok((outcome, out, err)) => judge(&outcome, &out, &err, self.timeout),
            Err(error) => Err(format!("the health command could not be run: {error}")),
        };
        let (report, words) = match judged {
            Ok(score) if score < self.least => {
                (score.into(), format!("the health command says {score}, which is below {}", self.least))
            }
            Ok(score) => (score.into(), String::new()),
            Err(words) => ((0.0, [(ERROR, words.clone())]).into(), words),
        };
        if self.verdict.set(&words) && !words.is_empty() {
            tracing::warn!(election = self.election, reason = words, "is not well");
        }
        report
    }

    async fn run(&self) -> io::Result<Done> {
        let kill_at = now().saturating_add(self.timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let overdue = tokio::time::Instant::now().checked_add(self.timeout.saturating_add(SLACK));
        let mut taken = self.keeper.borrow_mut().take();
        loop {
            let is_new = taken.is_none();
            let mut keeper = taken.take().map_or_else(|| self.start_guard(), Ok)?;
            let run = self.run_under(&mut keeper, kill_at);
            let ended = match overdue {
                Some(overdue) => tokio::time::timeout_at(overdue, run).await.unwrap_or(Ok(None)),
                None => run.await,
            };
            if let Ok(Some(done)) = ended {
                self.keeper.replace(Some(keeper));
                return Ok(done);
            }
            keeper.destroy().await;
            ended?;
            // That somebody has killed a guard while it waited says nothing about the candidate's health.
            if is_new || now() >= kill_at {
                return Err(io::Error::other("its guard died or does not answer"));
            }
        }
    }

    fn start_guard(&self) -> io::Result<Keeper> {
        let variables = [("TENURE_ELECTION", &*self.election), ("TENURE_CANDIDATE", &**self.candidate.wait())];
        Keeper::start_guard(&self.command, &variables)
    }

    /// Runs it, and returns when nothing is left of it; `None` if the guard cannot be counted on.
    async fn run_under(&self, keeper: &mut Keeper, kill_at: u64) -> io::Result<Option<Done>> {
        let nothing = File::open("/dev/null")?;
        let ((mut out, its_out), (mut err, its_err)) = (Tail::of_pipe()?, Tail::of_pipe()?);
        let streams = [nothing.as_fd(), its_out.as_fd(), its_err.as_fd()];
        if !keeper.start(None, kill_at, streams, None) {
            return Ok(None);
        }
        drop((its_out, its_err));
        let mut nudge = tokio::time::interval((self.timeout / 4).clamp(Duration::from_millis(1), MOST_PATIENCE));
        let (mut late, mut outcome) = (false, None);
        loop {
            tokio::select! {
                biased;
                news = keeper.news() => match news {
                    None => return Ok(None),
                    // Afterwards it is what was left behind.
                    Some(News::Cut) => late |= outcome.is_none(),
                    Some(News::Failed { errno }) => {
                        outcome = Some(Outcome::NotExecuted(Errno::from_raw_os_error(errno)));
                    }
                    Some(News::Exited(exit)) => {
                        outcome = Some(Outcome::Exited(exit));
                        // What it has left behind goes at once.
                        if !keeper.kill_at(0) {
                            return Ok(None);
                        }
                    }
                    Some(News::Gone) => break,
                    Some(News::Ready | News::Heard | News::Started { .. }) => {}
                },
                _ = nudge.tick() => keeper.wake(),
                () = out.read(), if !out.over => {}
                () = err.read(), if !err.over => {}
            }
        }
        let outcome = match outcome {
            Some(Outcome::Exited(Exit::Signal(_))) | None if late => Outcome::Late,
            Some(outcome) => outcome,
            None => return Ok(None),
        };
        Ok(Some((outcome, out.finish(), err.finish())))
    }
}

/// The score that a check came to, or what was wrong.
fn judge(outcome: &Outcome, out: &str, err: &str, timeout: Duration) -> Result<f64, String> {
    let last = |text: &str| text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(printable);
    let says = || last(err).or_else(|| last(out)).map(|line| format!(": {line}")).unwrap_or_default();
    match outcome {
        Outcome::Exited(Exit::Code(0)) => match last(out).and_then(|line| line.parse::<f64>().ok()) {
            None => Ok(1.0),
            Some(score) if (0.0..=1.0).contains(&score) => Ok(score),
            Some(score) => Err(format!("the health command says {score}, which is not from 0 to 1")),
        },
        Outcome::Exited(Exit::Code(code)) => Err(format!("the health command ended with exit code {code}{}", says())),
        Outcome::Exited(Exit::Signal(signal)) => {
            Err(format!("the health command was ended by signal {signal}{}", says()))
        }
        Outcome::Late => {
            let timeout = tenure::span::show(Duration::from_millis(timeout.as_millis().try_into().unwrap_or(u64::MAX)));
            Err(format!("the health command took longer than {timeout} and was killed{}", says()))
        }
        Outcome::NotExecuted(errno) => Err(format!("the health command could not be started: {errno}")),
    }
}

/// A line that others may be shown: no control characters, and not too long.
fn printable(line: &str) -> String {
    const MOST: usize = 200;
    let cut = line.char_indices().nth(MOST).map_or(line, |(at, _)| &line[..at]);
    crate::commands::printable(cut)
}

/// The end of what comes out of a pipe.
struct Tail {
    pipe: Receiver,
    kept: Vec<u8>,
    over: bool,
}

impl Tail {
    /// Also the other end of the pipe.
    fn of_pipe() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let pipe = Receiver::from_owned_fd(reader.into())?;
        Ok((Self { pipe, kept: Vec::new(), over: false }, writer.into()))
    }

    /// Waits for more, and takes it in. Nothing is lost if the future is dropped.
    async fn read(&mut self) {
        match self.pipe.readable().await {
            Ok(()) => drop(self.take_in()),
            Err(_) => self.over = true,
        }
    }

    /// Returns whether there may be more at once.
    fn take_in(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.pipe.try_read(&mut bytes) {
            Ok(0) => self.over = true,
            Ok(read) => self.keep(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => self.over = true,
        }
        !self.over
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT)..]);
        self.kept.drain(..self.kept.len().saturating_sub(KEPT));
    }

    /// All that has come by now.
    fn finish(mut self) -> String {
        // As much as a pipe can hold, and no more: whoever could still write to it is gone.
        for _ in 0..64 {
            if !self.take_in() {
                break;
            }
        }
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(exit: Exit, out: &str, err: &str) -> Result<f64, String> {
        judge(&Outcome::Exited(exit), out, err, Duration::from_secs(2))
    }

    #[test]
    fn a_command_is_as_well_as_its_exit_code_or_the_number_that_it_prints() {
        for (out, score) in [("", 1.0), ("ok\n", 1.0), ("0.25\n", 0.25), ("hello\n 0.5 \n\n", 0.5), ("0.5\nok\n", 1.0)]
        {
            assert_eq!(judged(Exit::Code(0), out, "0.1"), Ok(score), "{out:?}");
        }
        for out in ["", "1\n", "0.9\n"] {
            assert!(judged(Exit::Code(3), out, "").is_err(), "{out:?}");
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_told() {
        for out in ["2", "-0.1", "NaN", "inf", "1.000001", "1e300"] {
            let said = judged(Exit::Code(0), out, "").unwrap_err();
            assert!(said.ends_with("which is not from 0 to 1"), "{said}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line_without_control_characters() {
        let said = judged(Exit::Code(7), "out\n", "first\nno \x1b[31mdisk\n").unwrap_err();
        assert_eq!(said, "the health command ended with exit code 7: no \u{fffd}[31mdisk");
        let said = judged(Exit::Signal(9), "out\n", "").unwrap_err();
        assert_eq!(said, "the health command was ended by signal 9: out");
        let said = judge(&Outcome::Late, "", &"x".repeat(10_000), Duration::from_secs(2)).unwrap_err();
        assert!(said.starts_with("the health command took longer than 2s and was killed: xxx") && said.len() < 300);
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
