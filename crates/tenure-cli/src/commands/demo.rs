//! `tenure demo`: three candidates, and leaders that come to an end, live.

pub(crate) mod probe;
mod show;
mod stage;

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::ElectionOptions;

use self::probe::Report;
use self::show::{Round, Show};
use self::stage::{Happening, Stage, State};
use super::run::margin;
use crate::args::{Demo, Global};
use crate::failure::Failure;

/// How a leader comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Killed,
    Stopped,
    Asked,
}

impl End {
    const ALL: [Self; 3] = [Self::Killed, Self::Stopped, Self::Asked];

    fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Asked => "asked to leave",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Killed => "killed (-9)",
            Self::Stopped => "stopped",
            Self::Asked => "asked to leave",
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::Stopped => " (who is stopped is not gone: its lease must run out)",
            Self::Killed | Self::Asked => "",
        }
    }

    fn signal(self) -> Signal {
        match self {
            Self::Killed => Signal::KILL,
            Self::Stopped => Signal::STOP,
            Self::Asked => Signal::TERM,
        }
    }
}

/// Long enough to be seen.
const PAUSE: Duration = Duration::from_millis(1000);

pub(crate) fn run(global: &Global, args: &Demo) -> Result<u8, Failure> {
    if !tenure::schemes().contains(&"sqlite") {
        return Err(Failure::new("the demo needs the sqlite store: build with --features sqlite"));
    }
    // Each candidate would refuse it by itself, where it is not seen.
    margin(&ElectionOptions { lease: Some(args.lease), ..ElectionOptions::default() })?;
    let (mut stage, interrupted) = Stage::set(&["alice", "bob", "carol"], args.lease)
        .map_err(|error| Failure::new(format!("the demo could not be set up: {error}")))?;
    let show = Show::new(global, interrupted);
    show.opening(args.lease)?;
    let mut play = Play {
        stage: &mut stage,
        show: &show,
        overlaps: 0,
        patience: args.lease.saturating_mul(4).saturating_add(Duration::from_secs(20)),
    };
    let mut rounds = Vec::new();
    let first = match play.next_start()? {
        Some((report, _)) => report.token,
        None => return Ok(0),
    };
    for number in 1..=args.rounds {
        let Some(round) = play.round(End::ALL[(number as usize - 1) % End::ALL.len()])? else { break };
        show.round(number, &round)?;
        rounds.push(round);
    }
    let overlaps = play.overlaps;
    drop(stage);
    show.closing(&rounds, overlaps, first)?;
    Ok(if overlaps == 0 { 0 } else { 1 })
}

struct Play<'a> {
    stage: &'a mut Stage,
    show: &'a Show,
    overlaps: u32,
    patience: Duration,
}

impl Play<'_> {
    /// Ends the leader, and waits for the next; `None` if interrupted.
    fn round(&mut self, end: End) -> Result<Option<Round>, Failure> {
        if self.interrupted_within(PAUSE) {
            return Ok(None);
        }
        let leads = |state| if let State::Leads(token) = state { Some(token) } else { None };
        let candidates = self.stage.candidates.iter().enumerate();
        let leader = candidates.filter_map(|(at, candidate)| Some((at, leads(candidate.state)?))).next();
        let Some((at, token)) = leader else {
            return Err(Failure::new("nobody leads: the demo lost track").with_code(1));
        };
        let began = Instant::now();
        let leader = &mut self.stage.candidates[at];
        leader.signal(end.signal());
        leader.state = if end == End::Stopped { State::Stopped } else { State::Gone };
        let from = (leader.name, token);
        self.show.now(&self.stage.candidates);
        let Some((report, at_once)) = self.next_start()? else { return Ok(None) };
        let took = at_once - began;
        if report.token <= token {
            return Err(Failure::new(format!("term {} came after term {token}: a bug", report.token)).with_code(1));
        }
        if end == End::Stopped {
            self.stage.candidates[at].signal(Signal::CONT);
            self.stage.candidates[at].state = State::Waits;
        } else {
            self.stage.candidates[at].wait();
            self.stage.restart(at).map_err(Failure::from)?;
        }
        let overlap = report.overlap;
        Ok(Some(Round { end, from, to: (report.candidate, report.token), took, overlap }))
    }

    /// Waits for a command to start; `None` if interrupted.
    fn next_start(&mut self) -> Result<Option<(Report, Instant)>, Failure> {
        match self.stage.happenings.recv_timeout(self.patience) {
            Ok(Happening::Started(report, at)) => {
                self.note(&report);
                Ok(Some((report, at)))
            }
            Ok(Happening::Interrupted) => Ok(None),
            Err(_) => Err(Failure::new("no hand-over happened in time: is this machine very busy?").with_code(1)),
        }
    }

    /// Shows how things are for a while.
    fn interrupted_within(&mut self, pause: Duration) -> bool {
        self.show.now(&self.stage.candidates);
        match self.stage.happenings.recv_timeout(pause) {
            Ok(Happening::Interrupted) => true,
            Ok(Happening::Started(report, _)) => {
                self.note(&report);
                false
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn note(&mut self, report: &Report) {
        self.overlaps += u32::from(report.overlap);
        for candidate in &mut self.stage.candidates {
            if candidate.name == report.candidate {
                candidate.state = State::Leads(report.token);
            } else if matches!(candidate.state, State::Leads(_)) {
                candidate.state = State::Waits;
            }
        }
        self.show.now(&self.stage.candidates);
    }
}
