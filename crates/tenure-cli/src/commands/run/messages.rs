//! The messages of `tenure run` for people: one line on standard error for each change of state.

use tenure::{Candidate, EndReason, EventKind, Leader, Token};

use super::health::Verdict;
use crate::args::Global;
use crate::commands::{leader_words, printable};
use crate::failure::error_words;
use crate::process::wire::{Exit, Hook};
use crate::screen::Paint;
use crate::stderr;

/// Prints the messages, unless the user asked for a log or for errors only.
pub(crate) struct Messages {
    election: String,
    on: bool,
    /// Whether errors are printed: with `--quiet`, only they are.
    errors: bool,
    paint: Paint,
}

impl Messages {
    pub(crate) fn new(global: &Global, election: &str) -> Self {
        Self {
            election: election.to_owned(),
            on: global.prints_messages(),
            errors: global.prints_errors(),
            paint: Paint::for_stream(&std::io::stderr()),
        }
    }

    pub(crate) fn location(&self, url: &str, location: &str) {
        stderr::store(url, location, self.on);
    }

    pub(crate) fn event(&self, event: &EventKind, me: &Candidate, verdict: &Verdict) {
        let (name, paint) = (&self.election, self.paint);
        match event {
            EventKind::BecameLeader { term } => {
                self.print(paint.green(format!("leading {name} (term {})", term.token())))
            }
            // The end of the command, or the cause of a stop or a release, has its own message or needs none.
            EventKind::Ending { token, why }
                if !matches!(why, EndReason::Stopped | EndReason::Released | EndReason::Yielded) =>
            {
                let action = if why.is_voluntary() { "handing over" } else { "losing" };
                self.print(paint.yellow(format!("{action} {name} (term {token}): {}", why.as_str())));
            }
            EventKind::LeaderCrashed { crash } => {
                let (of, by) = (printable(&crash.of.id), printable(&crash.by));
                self.print(paint.yellow(format!("{of} (term {}) died; {by} has freed {name}", crash.token)));
            }
            EventKind::LeaderChanged { leader: Some(leader), .. } if leader.candidate != *me => {
                self.print(paint.dim(format!("waiting for {name}, led by {}", leader_words(leader))));
            }
            // The log has a line of its own about this.
            EventKind::Error { error } => {
                self.print_error(paint.red(format!("store error, retrying: {}", error_words(error))));
            }
            EventKind::Recovered => self.print(paint.green("the store is available again")),
            EventKind::HealthChanged { healthy: true } => self.print(paint.green("the candidate is healthy again")),
            EventKind::HealthChanged { healthy: false } => self.print(paint.yellow(verdict.words())),
            EventKind::Overran { token } => {
                self.error(format!(
                    "processes of term {token} of {name} cannot be killed; this candidate does not stand until they end"
                ));
            }
            _ => {}
        }
    }

    /// Prints that another candidate leads, so the command is not run.
    pub(crate) fn led_by(&self, leader: &Leader) {
        self.print(format!("{} is led by {}; not running the command", self.election, leader_words(leader)));
    }

    /// Prints that the occasion is claimed, so the command is not run.
    pub(crate) fn claimed(&self, by: &str, token: Token, done: bool) {
        let (name, by) = (&self.election, printable(by));
        // Without a sign of the end, the command runs, or its candidate has died or had to stop.
        let verb = if done { "was run" } else { "was started" };
        self.print(format!("{name} {verb} by {by} (term {token}); not running the command"));
    }

    /// Prints that this signal asks the candidate to leave.
    pub(crate) fn asked(&self, signal: i32) {
        let signal = match signal {
            1 => "SIGHUP".to_owned(),
            2 => "SIGINT".to_owned(),
            3 => "SIGQUIT".to_owned(),
            14 => "SIGALRM".to_owned(),
            15 => "SIGTERM".to_owned(),
            other => format!("signal {other}"),
        };
        self.print(self.paint.dim(format!("received {signal}, leaving {}", self.election)));
    }

    /// Prints that a hook has failed.
    pub(crate) fn hook_failed(&self, hook: Hook, exit: Exit) {
        let how = match exit {
            Exit::Code(code) => format!("exited with code {code}"),
            Exit::Signal(9) if hook == Hook::OnStop => {
                "was killed because its time was up; it has half of the time to wrap up, see --drain".to_owned()
            }
            Exit::Signal(signal) => format!("was killed by signal {signal}"),
        };
        self.error(format!("--{} {how}", hook.name()));
    }

    /// Prints that no time was left for the hook for the end.
    pub(crate) fn on_stop_skipped(&self) {
        self.error("--on-stop did not run, because its term was over; see --drain");
    }

    /// Prints that the guard was killed, or else does not respond.
    pub(crate) fn guard_failed(&self, was_killed: bool) {
        let what = if was_killed { "was killed" } else { "does not respond" };
        self.error(format!("the guard {what}; killing the command and starting another guard"));
    }

    /// Writes an error to the log, and prints it.
    fn error(&self, line: impl std::fmt::Display) {
        tracing::error!(election = self.election, "{line}");
        self.print_error(self.paint.red(line));
    }

    fn print_error(&self, line: impl std::fmt::Display) {
        if self.errors {
            stderr::line(format!("tenure: {line}"));
        }
    }

    fn print(&self, line: impl std::fmt::Display) {
        if self.on {
            stderr::line(format!("tenure: {line}"));
        }
    }
}
