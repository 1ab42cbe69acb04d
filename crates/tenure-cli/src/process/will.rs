//! The last will of `tenure run`: frees the seat at once when `tenure` is killed.
//!
//! ```text
//!  tenure ── killed
//!  guard  ────────▸ kills the command, sees that tenure is dead ──▸ connects, frees the seat, exits
//! ```
//!
//! Until then the guard has no connection to the store. It has only the will: sealed memory with the URL of the store,
//! the election and the candidate, which tenure sends it before the first term. The URL can contain a password, so it
//! is in no argument, no variable and no file.
//!
//! A store whose seats are freed with the process has a lifeline, and needs no will.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::time::Timespec;
use serde_json::{Value, json};
use tenure::{Candidate, Elections, Incarnation, LastWill, Token};

use crate::failure::error_words;
use crate::{json, stderr};

/// How long to wait for the death of a process whose connection is closed. It closes its files when it dies, so this
/// takes a moment at most.
const DYING: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// The will of a candidate.
pub(crate) struct Will {
    pub(crate) store: String,
    pub(crate) election: String,
    pub(crate) candidate: Candidate,
    pub(crate) lease: Duration,
    /// How to report the execution.
    pub(crate) report: Report,
}

/// How the execution of a will is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Lines,
    Json,
    /// Only failures are reported.
    Quiet,
}

impl Report {
    const ALL: [(Self, &str); 3] = [(Self::Lines, "lines"), (Self::Json, "json"), (Self::Quiet, "quiet")];
}

impl Will {
    /// Writes the will to memory that nobody can change any more, and that is freed with its last descriptor.
    pub(crate) fn seal(&self) -> std::io::Result<OwnedFd> {
        let memory = memfd_create(c"tenure-will", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut memory = File::from(memory);
        let report = Report::ALL.iter().find(|(report, _)| *report == self.report).map(|(_, word)| *word);
        let text = json!({
            "store": self.store,
            "election": self.election,
            "candidate": &*self.candidate.id,
            "incarnation": self.candidate.incarnation.to_string(),
            "lease_ms": json::ms(self.lease),
            "report": report,
        });
        memory.write_all(text.to_string().as_bytes())?;
        fcntl_add_seals(&memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(memory.into())
    }

    /// Reads a will. Several processes can share the descriptor, so its offset is not used.
    fn read(memory: impl AsFd) -> Option<Self> {
        let memory = File::from(memory.as_fd().try_clone_to_owned().ok()?);
        let mut bytes = vec![0; memory.metadata().ok()?.len().try_into().ok()?];
        memory.read_exact_at(&mut bytes, 0).ok()?;
        let will: Value = serde_json::from_slice(&bytes).ok()?;
        let text = |name: &str| will[name].as_str().map(str::to_owned);
        let incarnation = u128::from_str_radix(will["incarnation"].as_str()?, 16).ok()?;
        let candidate = Candidate { id: text("candidate")?.into(), incarnation: Incarnation::from_bits(incarnation) };
        let (_, report) =
            (Report::ALL.iter().map(|(report, word)| (*word, *report))).find(|(word, _)| will["report"] == *word)?;
        let lease = Duration::from_millis(will["lease_ms"].as_u64()?);
        Some(Self { store: text("store")?, election: text("election")?, candidate, lease, report })
    }
}

/// A process whose death can be proved.
pub(crate) struct Mortal(OwnedFd);

impl AsFd for Mortal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Mortal {
    /// Watches a process that is alive, and whose number therefore cannot belong to another one yet. `None` if the
    /// system does not support it.
    pub(crate) fn watch(process: Pid) -> Option<Self> {
        pidfd_open(process, PidfdFlags::empty()).ok().map(Self)
    }

    /// Waits for a process that is about to die. Returns whether it is dead, with all of its threads: the kernel makes
    /// the descriptor readable only then.
    pub(crate) fn is_dead(&self) -> bool {
        let mut death = [PollFd::new(&self.0, PollFlags::IN)];
        while poll(&mut death, Some(&DYING)) == Err(rustix::io::Errno::INTR) {}
        death[0].revents().contains(PollFlags::IN)
    }
}

/// How long to try for a process that most likely did not lead. A process that waited has nothing to free, so its guard
/// does not stay for a whole lease because a store does not answer.
const NOT_LED: Duration = Duration::from_secs(2);

/// Executes the will of a tenure that died at this time. `led`: a command ran when it died. Otherwise tenure was waiting, or
/// died right after it had won the seat. Signals that end a whole service or terminal do not end this process: the guard
/// has handlers for them.
pub(super) fn execute(will: &OwnedFd, led: bool, died: Instant) {
    if let Some(will) = Will::read(will) {
        let store = will.store.clone();
        execute_all("guard", &store, &[(will, led)], died);
    }
    stderr::flush();
}

/// How many wills to execute at once.
const AT_ONCE: usize = 64;

/// Executes the wills of one dead process, in the role of its guard or companion. Each will says whether the process has
/// led. Returns whether none has failed.
pub(super) fn execute_all(role: &str, store: &str, wills: &[(Will, bool)], died: Instant) -> bool {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let by: Arc<str> = format!("{role} {} on {host}", getpid().as_raw_nonzero()).into();
    let elections = tenure::connect(store).map(Elections::new).map_err(|error| error.to_string());
    let execute = async |will: &Will, led: bool| {
        let elections = elections.as_ref().map_err(String::clone)?;
        let last = LastWill { candidate: will.candidate.clone(), by: by.clone() };
        // All leases began before the death.
        let left = if led { will.lease } else { will.lease.min(NOT_LED) }.saturating_sub(died.elapsed());
        let freed = elections.execute_will(&will.election, &last, will.lease, left).await;
        freed.map_err(|error| error_words(&error))
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return false };
    let results: Vec<Executed<'_>> = runtime.block_on(async {
        let executed = wills.iter().map(async |(will, led)| (will, *led, execute(will, *led).await));
        futures_util::stream::iter(executed).buffer_unordered(AT_ONCE).collect().await
    });
    report(role, results.iter().filter(|(_, _, freed)| matches!(freed, Ok(Some(_)))));
    report(role, results.iter().filter(|(_, led, freed)| *led && matches!(freed, Ok(None))));
    for led in [true, false] {
        report(role, results.iter().filter(|(_, has_led, freed)| *has_led == led && freed.is_err()));
    }
    !results.iter().any(|(_, _, freed)| freed.is_err())
}

/// A will, whether its process has led, and the term that the will has ended, if any.
type Executed<'a> = (&'a Will, bool, Result<Option<Token>, String>);

/// Reports executions with the same outcome in one line.
fn report<'a>(role: &str, mut results: impl Iterator<Item = &'a Executed<'a>>) {
    let Some((will, led, result)) = results.next() else { return };
    let leader = &will.candidate.id;
    let seats = match results.count() {
        0 => format!("the seat of {}", will.election),
        more => format!("the seat of {} and {more} more", will.election),
    };
    let (message, is_error) = match result {
        Ok(Some(token)) => {
            (format!("the process of {leader} (term {token}) died; its {role} has freed {seats}"), false)
        }
        Ok(None) => {
            let why = "which does not name it: another candidate has taken it, or it was removed";
            (format!("the process of {leader} died; its {role} has left {seats} alone, {why}"), false)
        }
        Err(error) => {
            let then = match led {
                true => "it becomes free when its lease expires",
                false => "if it had just won, the seat becomes free when its lease expires",
            };
            (format!("cannot free {seats} after the process of {leader} died: {error}; {then}"), true)
        }
    };
    match will.report {
        Report::Quiet if !is_error => {}
        Report::Json if is_error => stderr::line(json::error(&message, None)),
        Report::Json => stderr::line(json::notice(&message)),
        Report::Lines | Report::Quiet => stderr::line(format!("tenure: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn will(report: Report) -> Will {
        Will {
            store: "redis://:pass@word@host".to_owned(),
            election: "jobs".to_owned(),
            candidate: Candidate { id: "web-1".into(), incarnation: Incarnation::from_bits(u128::MAX - 7) },
            lease: Duration::from_secs(15),
            report,
        }
    }

    #[test]
    fn a_will_is_read_as_it_was_sealed_and_by_every_reader() {
        for (report, _) in Report::ALL {
            let sealed = will(report).seal().unwrap();
            for _ in 0..2 {
                let read = Will::read(&sealed).unwrap();
                assert_eq!((&*read.store, &*read.election), ("redis://:pass@word@host", "jobs"));
                assert_eq!((read.candidate, read.lease), (will(report).candidate, Duration::from_secs(15)));
                assert_eq!(read.report, report);
            }
        }
    }

    #[test]
    fn a_sealed_will_cannot_be_changed() {
        let mut sealed = File::from(will(Report::Lines).seal().unwrap());
        assert!(sealed.write_all(b"x").is_err());
        assert!(sealed.set_len(0).is_err());
    }

    #[test]
    fn something_else_is_not_a_will() {
        assert!(Will::read(File::open("/dev/null").unwrap()).is_none());
    }

    #[test]
    fn only_a_dead_process_is_dead() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mortal = Mortal::watch(Pid::from_child(&child)).unwrap();
        let mut death = [PollFd::new(&mortal.0, PollFlags::IN)];
        poll(&mut death, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        assert!(death[0].revents().is_empty());
        drop(child.stdin.take());
        // Dead, although its parent has not reaped it yet.
        assert!(mortal.is_dead());
        child.wait().unwrap();
    }
}
