//! The output of the demo: a line for each hand-over and, on a terminal, a status line below them.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;

use super::End;
use super::stage::{Candidate, State};
use crate::args::Global;
use crate::commands::print;
use crate::failure::Failure;
use crate::json::{ms, versioned};
use crate::screen::{Paint, span};

pub(super) struct Show {
    json: bool,
    quiet: bool,
    paint: Paint,
    /// Becomes readable when the demo is interrupted.
    interrupted: UnixStream,
}

/// One hand-over.
pub(super) struct Round {
    pub(super) end: End,
    pub(super) from: (&'static str, u64),
    pub(super) to: (String, u64),
    pub(super) took: Duration,
    pub(super) overlap: bool,
}

impl Show {
    pub(super) fn new(global: &Global, interrupted: UnixStream) -> Self {
        let (json, quiet) = (global.json, global.quiet);
        Self { json, quiet, paint: Paint::for_stream(&std::io::stdout()), interrupted }
    }

    pub(super) fn opening(&self, lease: Duration) -> Result<(), Failure> {
        if self.json || self.quiet {
            return Ok(());
        }
        let lease = tenure::span::show(lease);
        self.print(
            self.paint.bold("Three candidates, one leader. When the leader ends, another candidate takes over."),
        )?;
        self.print(self.paint.dim(format!(
            "The leader's command locks a file, to show that no other command runs at the same time. Lease: {lease}."
        )))?;
        self.print("")?;
        self.print(self.paint.dim(format!("{:<8}{:<22}{:<20}{}", "", "the leader", "the next", "after")))
    }

    /// Updates the status line.
    pub(super) fn now(&self, candidates: &[Candidate]) {
        if !self.paint.is_on() || self.json || self.quiet {
            return;
        }
        let mut line = String::new();
        for candidate in candidates {
            let (sign, words) = match candidate.state {
                State::Leads(token) => ("●", self.paint.green(format!("{} leads (term {token})", candidate.name))),
                State::Waits => ("○", self.paint.dim(format!("{} waits", candidate.name))),
                State::Stopped => ("‖", self.paint.yellow(format!("{} is stopped", candidate.name))),
                State::Gone => ("✗", self.paint.red(format!("{} is gone", candidate.name))),
            };
            line += &format!("  {sign} {words}");
        }
        self.print_over(&line);
    }

    pub(super) fn round(&self, number: u32, round: &Round) -> Result<(), Failure> {
        if self.json {
            return self.print(versioned(json!({
                "round": number,
                "ended": { "candidate": round.from.0, "token": round.from.1, "how": round.end.word() },
                "next": { "candidate": round.to.0, "token": round.to.1 },
                "took_ms": ms(round.took),
                "overlap": round.overlap,
            })));
        }
        if self.quiet {
            return Ok(());
        }
        self.clear();
        let (from, to) =
            (format!("{} {}", round.from.0, round.end.description()), format!("{} (term {})", round.to.0, round.to.1));
        let overlap = if round.overlap { self.paint.red("  overlap!") } else { String::new() };
        self.print(format!("{number:>5}.  {from:<22}{:<20}{}{overlap}", to, took(round.took)))
    }

    pub(super) fn closing(&self, rounds: &[Round], overlaps: u32, first: u64) -> Result<(), Failure> {
        let last = rounds.last().map_or(first, |round| round.to.1);
        if self.json {
            return self.print(versioned(json!({
                "hand_overs": rounds.len(),
                "overlaps": overlaps,
                "first_token": first,
                "last_token": last,
            })));
        }
        self.clear();
        if !self.quiet {
            self.print("")?;
        }
        let verdict = match overlaps {
            0 => self.paint.green("never two commands at once"),
            1 => self.paint.red("1 overlap"),
            more => self.paint.red(format!("{more} overlaps")),
        };
        let hand_overs = if rounds.len() == 1 { "hand-over" } else { "hand-overs" };
        self.print(format!("{} {hand_overs}, {verdict}, terms {first} to {last}.", rounds.len()))?;
        for end in End::ALL {
            let mut took: Vec<Duration> =
                rounds.iter().filter(|round| round.end == end).map(|round| round.took).collect();
            took.sort();
            if let Some(median) = took.get(took.len() / 2).filter(|_| !self.quiet) {
                self.print(format!(
                    "  {:<16}{} until the next leader's command ran{}",
                    end.word(),
                    self::took(*median),
                    end.note()
                ))?;
            }
        }
        Ok(())
    }

    /// Prints a line. While standard output is blocked (Ctrl-S, a full pipe), an interrupt still ends the demo.
    fn print(&self, line: impl Display) -> Result<(), Failure> {
        if self.has_room() { print(line) } else { Err(Failure::reader_gone()) }
    }

    fn print_over(&self, line: &str) {
        if self.has_room() {
            let mut out = std::io::stdout().lock();
            let _ = write!(out, "\r\x1b[K{line}");
            let _ = out.flush();
        }
    }

    /// Waits until standard output accepts more; `false` if the demo is interrupted first.
    fn has_room(&self) -> bool {
        let stdout = std::io::stdout();
        let mut sources = [PollFd::new(&stdout, PollFlags::OUT), PollFd::new(&self.interrupted, PollFlags::IN)];
        while poll(&mut sources, None) == Err(Errno::INTR) {}
        !sources[0].revents().is_empty()
    }

    pub(super) fn clear(&self) {
        if self.paint.is_on() && !self.json {
            self.print_over("");
        }
    }
}

fn took(time: Duration) -> String {
    if time < Duration::from_millis(100) { format!("{:.1} ms", time.as_secs_f64() * 1000.0) } else { span(time) }
}
