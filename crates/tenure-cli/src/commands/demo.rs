//! `tenure demo`: runs three candidates, and ends the leader again and again.

pub(crate) mod probe;
mod show;
mod stage;

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::ElectionOptions;

use self::probe::Report;
use self::show::{Round, Show};
use self::stage::{Stage, StageEvent, State};
use super::run::margin;
use crate::args::{Demo, Global};
use crate::failure::Failure;

/// The way in which the demo ends a leader.
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

    fn description(self) -> &'static str {
        match self {
            Self::Killed => "killed (-9)",
            Self::Stopped => "stopped",
            Self::Asked => "asked to leave",
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::Stopped => " (a stopped leader keeps the seat until its lease expires)",
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

/// The pause before a leader is ended, long enough for people to see who leads.
const PAUSE: Duration = Duration::from_millis(1000);

pub(crate) fn run(global: &Global, args: &Demo) -> Result<u8, Failure> {
    if !tenure::schemes().contains(&"sqlite") {
        return Err(Failure::new("the demo needs the sqlite store; build tenure with --features sqlite"));
    }
    // Checked here, because the error messages of the candidates are not shown.
    margin(&ElectionOptions { lease: Some(args.lease), ..ElectionOptions::default() }, Duration::ZERO)?;
    let (mut stage, interrupted) = Stage::set(&["alice", "bob", "carol"], args.lease)
        .map_err(|error| Failure::new(format!("cannot start the demo: {error}")))?;
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
    /// Ends the leader and waits for the next one; `None` if interrupted.
    fn round(&mut self, end: End) -> Result<Option<Round>, Failure> {
        if self.interrupted_within(PAUSE) {
            return Ok(None);
        }
        let leads = |state| if let State::Leads(token) = state { Some(token) } else { None };
        let candidates = self.stage.candidates.iter().enumerate();
        let leader = candidates.filter_map(|(at, candidate)| Some((at, leads(candidate.state)?))).next();
        let Some((at, token)) = leader else {
            return Err(Failure::new("the demo has lost track of the leader; run it again").with_code(1));
        };
        let began = Instant::now();
        let leader = &mut self.stage.candidates[at];
        leader.signal(end.signal());
        leader.state = if end == End::Stopped { State::Stopped } else { State::Gone };
        let from = (leader.name, token);
        self.show.now(&self.stage.candidates);
        let Some((report, started)) = self.next_start()? else { return Ok(None) };
        let took = started - began;
        if report.token <= token {
            return Err(Failure::new(format!("term {} follows term {token}; please report this bug", report.token))
                .with_code(1));
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
        match self.stage.events.recv_timeout(self.patience) {
            Ok(StageEvent::Started(report, at)) => {
                self.note(&report);
                Ok(Some((report, at)))
            }
            Ok(StageEvent::Interrupted) => Ok(None),
            Err(_) => Err(Failure::new("no candidate took over in time; this machine may be too busy").with_code(1)),
        }
    }

    /// Shows the state of the candidates during a pause. Returns whether the demo was interrupted.
    fn interrupted_within(&mut self, pause: Duration) -> bool {
        self.show.now(&self.stage.candidates);
        match self.stage.events.recv_timeout(pause) {
            Ok(StageEvent::Interrupted) => true,
            Ok(StageEvent::Started(report, _)) => {
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
