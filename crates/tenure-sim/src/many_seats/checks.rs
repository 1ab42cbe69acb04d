//! The invariants of a world of many seats.

use tenure_protocol::EndReason;

use super::process::Ask;
use super::{LEASE, ManySeats};
use crate::clock::{Time, nanos};

/// The invariants that are checked only here, and not in the world of one seat.
pub(crate) const NAMES: [&str; 3] = [IN_BOUNDS, NO_IDLE_WAIT, CHANGES_NOTICED];

/// A call holds at most as many seats as allowed, each seat once, and only asks of one kind that their
/// elections wait for.
const IN_BOUNDS: &str = "calls are in bounds";
/// No ask waits while its group has a free place: no other call delays the asks that keep a term.
const NO_IDLE_WAIT: &str = "no ask waits without a reason";
/// Without faults, a process that gets pushes has read a seat within a third of a lease after the seat changed, or
/// after the store started to listen. A process without pushes has read it within two thirds of a lease.
const CHANGES_NOTICED: &str = "every change is noticed";

const ONE_LEADER: &str = "one leader";
/// Without faults, every end of a term was asked for, except that of the faulty seat.
const NO_FALSE_LOSS: &str = "no false loss";
/// Without faults, a seat is read when something happened to it, and otherwise about once per lease, or three
/// times while no pushes arrive.
const LOOKS_ARE_FEW: &str = "looks are few";
const PROGRESS: &str = "progress";

pub(super) struct Checks {
    /// The reads that were sent, by process and seat, and the reasons to read.
    pub(super) reads: Vec<Vec<u64>>,
    pub(super) reasons: Vec<Vec<u64>>,
    /// When a seat last became faulty, or stopped being faulty.
    pub(super) odd_at: Time,
}

impl Checks {
    pub(super) fn new(processes: usize, seats: usize) -> Self {
        Self { reads: vec![vec![0; seats]; processes], reasons: vec![vec![0; seats]; processes], odd_at: 0 }
    }
}

impl ManySeats {
    /// Checks everything after each event.
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
        if self.plan.clear && self.now.saturating_sub(self.checks.odd_at) > nanos(LEASE) && self.store.faulty.is_none()
        {
            self.check_changes_noticed();
        }
    }

    fn check_changes_noticed(&mut self) {
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
                        if hears { "gets pushes" } else { "gets no pushes" },
                        changed_at as f64 / 1e9
                    );
                    return self.broken(CHANGES_NOTICED, what);
                }
            }
        }
    }

    /// Checks a call that is about to leave.
    pub(super) fn check_call(&mut self, nr: usize, asks: &[Ask]) {
        let process = &self.processes[nr];
        let kind = |(seat, number): &Ask| {
            let asked = process.elections[*seat].asked.as_ref().filter(|asked| asked.number == *number);
            asked.map(|asked| (asked.lane, asked.reads()))
        };
        let Some(Some((lane, reads))) = asks.first().map(kind) else {
            return self.broken(IN_BOUNDS, format!("process {nr} makes a call that no election waits for"));
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
        } else if process.in_flight(lane, reads) >= most.calls {
            Some("exceeds the limit of calls in flight")
        } else if seats.len() < asks.len() {
            Some("holds a seat twice")
        } else if asks.iter().any(|ask| kind(ask) != Some((lane, reads))) {
            Some("holds asks of two kinds, or one that no election waits for")
        } else if asks.iter().any(is_sent) {
            Some("holds an ask that is already in flight")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.broken(IN_BOUNDS, format!("a call of process {nr} about {asks:?} {wrong}"));
        }
    }

    /// Checks the asks that still wait after all allowed calls have left.
    pub(super) fn check_places(&mut self, nr: usize) {
        let process = &self.processes[nr];
        let waits = process.elections.iter().enumerate().find(|(_, election)| {
            election.asked.as_ref().is_some_and(|asked| {
                let most = if asked.reads() { self.plan.reads } else { self.plan.writes };
                let is_under_way = asked.sent.is_some_and(|(call, _)| process.calls.contains_key(&call));
                !is_under_way && process.in_flight(asked.lane, asked.reads()) < most.calls
            })
        });
        if let Some((seat, _)) = waits.filter(|_| process.runs) {
            self.broken(NO_IDLE_WAIT, format!("the ask of process {nr} for seat {seat} waits without a reason"));
        }
    }

    pub(super) fn check_end(&mut self, nr: usize, seat: usize, why: EndReason) {
        let is_odd = self.store.faulty == Some(seat) || self.now.saturating_sub(self.checks.odd_at) < 2 * nanos(LEASE);
        if self.plan.clear && !why.is_voluntary() && !is_odd {
            self.broken(NO_FALSE_LOSS, format!("process {nr} lost seat {seat}: {}", why.as_str()));
        }
    }

    /// Without faults, every ask is answered in time, even if its call was split.
    pub(super) fn check_time_out(&mut self, nr: usize, seat: usize) {
        if self.plan.clear {
            self.broken(NO_FALSE_LOSS, format!("process {nr} got no answer for seat {seat}"));
        }
    }

    pub(super) fn check_progress(&mut self) {
        let now = self.moment();
        for seat in 0..self.plan.seats {
            let mut machines = self.processes.iter().filter_map(|process| process.elections[seat].machine.as_ref());
            if !machines.any(|machine| machine.term(now).is_some()) {
                self.broken(PROGRESS, format!("no process leads seat {seat} at the end"));
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
