//! One friendly line on standard error for each change of state.

use tenure::{Candidate, EndReason, Event};

use super::health::Verdict;
use crate::args::Global;
use crate::commands::leader_words;
use crate::failure::store_error;
use crate::say;
use crate::screen::Paint;

/// Tells people what happens, unless they want the log or nothing.
pub(crate) struct Teller {
    election: String,
    on: bool,
    paint: Paint,
}

impl Teller {
    pub(crate) fn new(global: &Global, election: &str) -> Self {
        Self { election: election.to_owned(), on: global.talks(), paint: Paint::for_stream(&std::io::stderr()) }
    }

    pub(crate) fn whereabouts(&self, store: &str) {
        say::store(store, self.on);
    }

    pub(crate) fn event(&self, event: &Event, me: &Candidate, verdict: &Verdict) {
        let (name, paint) = (&self.election, self.paint);
        match event {
            Event::BecameLeader { term } => self.say(paint.green(format!("leads {name} (term {})", term.token()))),
            // The reason for a stop or a release was said when it was asked for.
            Event::Ending { token, why } if !matches!(why, EndReason::Stopped | EndReason::Released) => {
                let does = if why.is_voluntary() { "hands over" } else { "loses" };
                self.say(paint.yellow(format!("{does} {name} (term {token}): {}", why.as_str())));
            }
            Event::LeaderChanged { leader: Some(leader) } if leader.candidate != *me => {
                self.say(paint.dim(format!("waits for {name}, led by {}", leader_words(leader))));
            }
            Event::Error { error } => {
                self.say(paint.red(format!("the store fails: {}: still trying", store_error(error))));
            }
            Event::Recovered => self.say(paint.green("the store works again")),
            Event::HealthChanged { healthy: true } => self.say(paint.green("is well again")),
            Event::HealthChanged { healthy: false } => {
                let why = Some(verdict.words()).filter(|words| !words.is_empty());
                let why = why.unwrap_or_else(|| "the health check does not answer".to_owned());
                self.say(paint.yellow(format!("is not well enough to lead {name}: {why}")));
            }
            Event::Overran { token } => {
                self.say(paint.red(format!(
                    "something of term {token} of {name} cannot be killed: it stands no more until then"
                )));
            }
            _ => {}
        }
    }

    pub(crate) fn asked(&self, signal: i32) {
        let what = match signal {
            2 => "interrupted",
            1 => "hung up on",
            _ => "asked to end",
        };
        self.say(self.paint.dim(format!("{what}: leaves {}", self.election)));
    }

    /// The guard was killed, or else does not answer.
    pub(crate) fn guard_failed(&self, was_killed: bool) {
        let what = if was_killed { "was killed" } else { "does not answer" };
        self.say(self.paint.red(format!("the guard {what}: kills everything it guarded, and starts another guard")));
    }

    fn say(&self, line: impl std::fmt::Display) {
        if self.on {
            say::line(format!("tenure: {line}"));
        }
    }
}
