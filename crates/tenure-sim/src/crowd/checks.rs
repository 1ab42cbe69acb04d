//! What must hold in a world of many seats.

use tenure_protocol::EndReason;

use super::process::Ask;
use super::{Crowd, LEASE};
use crate::clock::{Time, nanos};

/// Of the invariants that are checked here and not in the world of one seat.
pub(crate) const NAMES: [&str; 3] = [IN_BOUNDS, NO_FREE_PLACE, NOBODY_SLEEPS];

/// A call holds no more than it may, each seat once, and only asks of one kind that somebody waits for.
const IN_BOUNDS: &str = "calls are in bounds";
/// No ask waits while its kind has a place: nothing else holds up what keeps a term.
const NO_FREE_PLACE: &str = "no place stays free";
/// In clear weather, a process that hears has looked at a seat a third of a lease after it changed, or after the store
/// began to listen; one that does not hear, after two thirds.
const NOBODY_SLEEPS: &str = "nobody sleeps through a change";

const ONE_LEADER: &str = "one leader";
/// In clear weather, no term ends unasked, except that of the odd seat.
const NO_FALSE_LOSS: &str = "no false loss";
/// In clear weather, a seat is read when something happened to it, and else about once a lease, or three times while
/// nothing is heard.
const LOOKS_ARE_FEW: &str = "looks are few";
const PROGRESS: &str = "progress";

pub(super) struct Checks {
    /// Reads that were sent, by process and seat, and reasons to read.
    pub(super) reads: Vec<Vec<u64>>,
    pub(super) reasons: Vec<Vec<u64>>,
    /// When a seat last became odd, or stopped being so.
    pub(super) odd_at: Time,
}

impl Checks {
    pub(super) fn new(processes: usize, seats: usize) -> Self {
        Self { reads: vec![vec![0; seats]; processes], reasons: vec![vec![0; seats]; processes], odd_at: 0 }
    }
}

impl Crowd {
    /// Looks at everything after each event.
    pub(super) fn check(&mut self) {
        let now = self.moment();
        for seat in 0..self.plan.seats {
            let leads = |nr: &usize| {
                let process = &self.processes[*nr];
                let machine = process.elections[seat].machine.as_ref().filter(|_| process.runs);
                machine.is_some_and(|machine| machine.term(now).is_some())
            };
            let leaders: Vec<usize> = (0..self.processes.len()).filter(leads).collect();
            if leaders.len() > 1 {
                self.broken(ONE_LEADER, format!("seat {seat} is led by processes {leaders:?}"));
            }
        }
        if self.plan.clear && self.now.saturating_sub(self.checks.odd_at) > nanos(LEASE) && self.store.odd.is_none() {
            self.check_sleepers();
        }
    }

    fn check_sleepers(&mut self) {
        for nr in 0..self.processes.len() {
            let process = &self.processes[nr];
            let (hears, since) = process.hears;
            let bound = nanos(LEASE) / 3 * if hears { 1 } else { 2 };
            let stands = |seat: &usize| process.runs && process.elections[*seat].machine.is_some();
            for seat in (0..self.plan.seats).filter(stands) {
                let changed_at = self.store.changed_at[seat];
                let due = changed_at.max(since).max(process.started_at) + bound;
                if self.now > due && process.elections[seat].seen_at < changed_at {
                    let what = format!(
                        "process {nr} {} and has not looked at seat {seat} since it changed at {:.3} s",
                        if hears { "hears" } else { "does not hear" },
                        changed_at as f64 / 1e9
                    );
                    return self.broken(NOBODY_SLEEPS, what);
                }
            }
        }
    }

    /// Looks at a call that is about to leave.
    pub(super) fn check_call(&mut self, nr: usize, asks: &[Ask]) {
        let process = &self.processes[nr];
        let kind = |(seat, number): &Ask| {
            let asked = process.elections[*seat].asked.as_ref().filter(|asked| asked.number == *number);
            asked.map(|asked| (asked.lane, asked.reads()))
        };
        let Some(Some((lane, reads))) = asks.first().map(kind) else {
            return self.broken(IN_BOUNDS, format!("process {nr} makes a call that nobody waits for"));
        };
        let most = if reads { self.plan.reads } else { self.plan.writes };
        let mut seats: Vec<usize> = asks.iter().map(|(seat, _)| *seat).collect();
        seats.sort_unstable();
        seats.dedup();
        let is_sent = |(seat, _): &Ask| {
            let sent = process.elections[*seat].asked.as_ref().and_then(|asked| asked.sent);
            sent.is_some_and(|(call, _)| process.calls.contains_key(&call))
        };
        let wrong = if asks.len() > most.seats {
            Some("holds too many seats")
        } else if process.underway(lane, reads) >= most.calls {
            Some("is one too many")
        } else if seats.len() < asks.len() {
            Some("holds a seat twice")
        } else if asks.iter().any(|ask| kind(ask) != Some((lane, reads))) {
            Some("holds asks of two kinds, or one that nobody waits for")
        } else if asks.iter().any(is_sent) {
            Some("holds what is under way already")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.broken(IN_BOUNDS, format!("a call of process {nr} about {asks:?} {wrong}"));
        }
    }

    /// Looks at what still waits when all calls have left that may.
    pub(super) fn check_places(&mut self, nr: usize) {
        let process = &self.processes[nr];
        let waits = process.elections.iter().enumerate().find(|(_, election)| {
            election.asked.as_ref().is_some_and(|asked| {
                let most = if asked.reads() { self.plan.reads } else { self.plan.writes };
                let is_under_way = asked.sent.is_some_and(|(call, _)| process.calls.contains_key(&call));
                !is_under_way && process.underway(asked.lane, asked.reads()) < most.calls
            })
        });
        if let Some((seat, _)) = waits.filter(|_| process.runs) {
            self.broken(NO_FREE_PLACE, format!("process {nr} has asked about seat {seat}, which waits for no reason"));
        }
    }

    pub(super) fn check_end(&mut self, nr: usize, seat: usize, why: EndReason) {
        let is_odd = self.store.odd == Some(seat) || self.now.saturating_sub(self.checks.odd_at) < 2 * nanos(LEASE);
        if self.plan.clear && !why.is_voluntary() && !is_odd {
            self.broken(NO_FALSE_LOSS, format!("process {nr} lost seat {seat}: {}", why.as_str()));
        }
    }

    /// In clear weather every ask is answered in time, even if its call was taken apart.
    pub(super) fn check_time_out(&mut self, nr: usize, seat: usize) {
        if self.plan.clear {
            self.broken(NO_FALSE_LOSS, format!("process {nr} was not answered about seat {seat}"));
        }
    }

    pub(super) fn check_progress(&mut self) {
        let now = self.moment();
        for seat in 0..self.plan.seats {
            let mut machines = self.processes.iter().filter_map(|process| process.elections[seat].machine.as_ref());
            if !machines.any(|machine| machine.term(now).is_some()) {
                self.broken(PROGRESS, format!("nobody leads seat {seat} at the end"));
            }
        }
        if !self.plan.clear {
            return;
        }
        for nr in 0..self.processes.len() {
            for seat in 0..self.plan.seats {
                let (reads, reasons) = (self.checks.reads[nr][seat], self.checks.reasons[nr][seat]);
                if reads > super::LEASES * 8 / 5 + reasons {
                    let what = format!("process {nr} read seat {seat} {reads} times for {reasons} reasons");
                    self.broken(LOOKS_ARE_FEW, what);
                }
            }
        }
    }
}
