//! A process: its machines, its calls and its notifications. A short version of what the engine does between
//! them.

use std::collections::{BTreeMap, VecDeque};

use tenure_protocol::{Action, Candidate, Fault, Incarnation, Input, Lane, Moment, Record, Version};

use super::store::Landing;
use super::{Answer, Event, LEASE, ManySeats, Plan, PushDetail};
use crate::clock::{Time, nanos};
use crate::driven::{Driven, DrivenAdmission, DrivenSubscriptions, Parts};

/// An ask: the seat of an election, and the number of its request.
pub(crate) type Ask = (usize, u64);

pub(super) struct Process {
    pub(super) life: u32,
    pub(super) runs: bool,
    pub(super) started_at: Time,
    /// Since when it gets pushes, or gets none.
    pub(super) hears: (bool, Time),
    pub(super) elections: Vec<Election>,
    admission: Box<dyn DrivenAdmission>,
    subscriptions: Box<dyn DrivenSubscriptions>,
    pub(super) calls: BTreeMap<u64, Calling>,
    numbers: u64,
}

#[derive(Default)]
pub(super) struct Election {
    pub(super) machine: Option<Box<dyn Driven>>,
    wake: u64,
    unsettled: bool,
    pub(super) asked: Option<Asked>,
    /// When the store processed the call that was last answered.
    pub(super) seen_at: Time,
}

pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) lane: Lane,
    what: What,
    /// The call that carries the ask, and its place in the call.
    pub(super) sent: Option<(u64, usize)>,
}

/// What an ask wants of the store.
#[derive(Clone, Debug)]
pub(super) enum What {
    Read,
    Swap { expected: Option<Version>, record: Record },
    Renew { record: Record },
}

/// A call in flight.
pub(super) struct Calling {
    pub(super) lane: Lane,
    pub(super) reads: bool,
    asks: Vec<Option<Ask>>,
}

impl Asked {
    pub(super) fn reads(&self) -> bool {
        self.what.reads()
    }
}

impl What {
    pub(super) fn reads(&self) -> bool {
        matches!(self, Self::Read)
    }

    pub(super) fn failed(&self, fault: Fault) -> Input {
        if self.reads() { Input::Read(Err(fault)) } else { Input::Written(Err(fault)) }
    }
}

impl Process {
    pub(super) fn new(plan: &Plan, make: Parts) -> Self {
        Self {
            life: 0,
            runs: false,
            started_at: 0,
            hears: (false, 0),
            elections: (0..plan.seats).map(|_| Election::default()).collect(),
            admission: (make.admission)(plan.reads, plan.writes),
            subscriptions: (make.subscriptions)(),
            calls: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// Returns how many calls of a kind are in flight.
    pub(super) fn in_flight(&self, lane: Lane, reads: bool) -> usize {
        self.calls.values().filter(|call| (call.lane, call.reads) == (lane, reads)).count()
    }

    fn waits(&self, (seat, number): Ask) -> bool {
        self.elections[seat].asked.as_ref().is_some_and(|asked| asked.number == number)
    }

    /// Gives up this place of a call. The call ends with its last place.
    fn let_go(&mut self, call: u64, place: usize) {
        let Some(calling) = self.calls.get_mut(&call) else { return };
        calling.asks[place] = None;
        if calling.asks.iter().all(Option::is_none) {
            self.calls.remove(&call);
            self.admission.ended(call);
        }
    }
}

impl ManySeats {
    pub(super) fn start(&mut self, nr: usize) {
        let life = self.processes[nr].life + 1;
        let mut process = Process::new(&self.plan, self.make);
        (process.life, process.runs, process.started_at) = (life, true, self.now);
        process.hears = (false, self.now);
        self.processes[nr] = process;
        self.say(Some(nr), || "starts".into());
        for seat in 0..self.plan.seats {
            self.begin(nr, life, seat);
        }
        let delay = self.some_time();
        self.after(delay, Event::Subscribe(nr, life));
    }

    /// Starts an election of a process.
    pub(super) fn begin(&mut self, nr: usize, life: u32, seat: usize) {
        if self.processes[nr].life != life {
            return;
        }
        let incarnation = Incarnation::from_bits(u128::from(life) << 8 | nr as u128);
        let me = Candidate { id: format!("p{nr}").into(), incarnation };
        let machine = (self.make.machine)(me, self.rules.clone(), self.dice.roll());
        self.processes[nr].elections[seat].machine = Some(machine);
        self.processes[nr].elections[seat].seen_at = self.now;
        let notified = self.processes[nr].subscriptions.begin(seat);
        self.on_notifications(nr, notified);
        self.step(nr, seat, Input::Start);
    }

    /// Drops an election that holds no seat and whose look has not left yet.
    pub(super) fn drop_waiting(&mut self, nr: usize) {
        let process = &mut self.processes[nr];
        let waits = |asked: &Asked| asked.lane == Lane::Background && asked.reads() && asked.sent.is_none();
        let Some(seat) = process.elections.iter().position(|election| election.asked.as_ref().is_some_and(waits))
        else {
            return;
        };
        process.elections[seat] = Election::default();
        process.subscriptions.end(seat);
        let life = process.life;
        self.say(Some(nr), || format!("seat {seat}: its election is dropped"));
        self.checks.reasons[nr][seat] += 2;
        let delay = self.dice.below(nanos(LEASE));
        self.after(delay, Event::Begin(nr, life, seat));
    }

    pub(super) fn kill(&mut self, nr: usize) {
        if std::mem::take(&mut self.processes[nr].runs) {
            self.say(Some(nr), || "is killed".into());
            self.stop_listening(nr);
            // Events on their way to it are ignored.
            self.processes[nr].life += 1;
            let delay = self.dice.below(nanos(LEASE));
            self.after(delay, Event::Start(nr));
        }
    }

    pub(super) fn moment(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    pub(super) fn wake(&mut self, nr: usize, life: u32, seat: usize, number: u64) {
        if self.processes[nr].life == life && self.processes[nr].elections[seat].wake == number {
            self.step(nr, seat, Input::Wake);
        }
    }

    /// Steps a machine and performs its actions, until nothing is left to do now.
    pub(super) fn step(&mut self, nr: usize, seat: usize, input: Input) {
        if !self.processes[nr].runs {
            return;
        }
        let (mut inputs, mut actions) = (VecDeque::from([input]), Vec::new());
        while let Some(input) = inputs.pop_front() {
            let now = self.moment();
            self.stats.steps += 1;
            let Some(machine) = &mut self.processes[nr].elections[seat].machine else { return };
            machine.step(now, input, &mut actions);
            for action in actions.drain(..) {
                self.perform(nr, seat, action, &mut inputs);
            }
        }
    }

    fn perform(&mut self, nr: usize, seat: usize, action: Action, inputs: &mut VecDeque<Input>) {
        let now = self.moment();
        let election = &mut self.processes[nr].elections[seat];
        let leads = election.machine.as_ref().is_some_and(|machine| machine.term(now).is_some());
        match action {
            Action::Read => {
                let unsettled = election.unsettled;
                let lane = if leads {
                    Lane::Keep
                } else if unsettled {
                    Lane::Settle
                } else {
                    Lane::Background
                };
                self.ask(nr, seat, lane, What::Read);
            }
            Action::Swap { expected, record } => {
                let lane = if leads || record.is_vacant() { Lane::Keep } else { Lane::Background };
                self.ask(nr, seat, lane, What::Swap { expected, record });
            }
            Action::Renew { record, .. } => self.ask(nr, seat, Lane::Keep, What::Renew { record }),
            Action::Watch { seat: seen, .. } => {
                let record = seen.as_ref().map(|seat| &seat.record);
                let names = record.map(|record| record.names());
                let nonce = record.map(|record| record.nonce);
                let notified = self.processes[nr].subscriptions.watch(seat, names, nonce);
                // It is being stepped, and no other election is notified of what it has seen.
                inputs.extend(notified.into_iter().map(|(_, input)| input));
            }
            Action::ReadBoard => inputs.push_back(Input::Requests(Vec::new())),
            Action::ReadRoster => inputs.push_back(Input::Roster(Vec::new())),
            Action::WakeAt(moment) => {
                self.processes[nr].numbers += 1;
                let number = self.processes[nr].numbers;
                self.processes[nr].elections[seat].wake = number;
                let delay = nanos(moment.since(now));
                self.after(delay, Event::Wake(nr, self.processes[nr].life, seat, number));
            }
            Action::Ending { token, .. } => inputs.push_back(Input::Drained(token)),
            Action::Began { token, .. } => {
                self.stats.terms += 1;
                self.say(Some(nr), || format!("seat {seat}: leads with {token:?}"));
            }
            Action::Ended { why, .. } => {
                self.say(Some(nr), || format!("seat {seat}: no longer leads, {}", why.as_str()));
                self.check_end(nr, seat, why);
            }
            _ => {}
        }
    }

    fn ask(&mut self, nr: usize, seat: usize, lane: Lane, what: What) {
        let (lease, within) = (self.rules.timing.lease(), self.rules.timing.call_timeout());
        let process = &mut self.processes[nr];
        process.numbers += 1;
        let number = process.numbers;
        process.admission.ask(lane, what.reads(), lease, within, (seat, number));
        process.elections[seat].asked = Some(Asked { number, lane, what, sent: None });
    }

    /// Makes the calls that admission allows now.
    pub(super) fn call_waiting(&mut self, nr: usize) {
        while self.processes[nr].runs && self.violation.is_none() {
            let process = &mut self.processes[nr];
            let elections = &process.elections;
            let mut waits =
                |(seat, number): &Ask| elections[*seat].asked.as_ref().is_some_and(|asked| asked.number == *number);
            let Some((call, asks)) = process.admission.next(&mut waits) else { break };
            self.check_call(nr, &asks);
            self.send(nr, call, asks);
        }
        self.check_places(nr);
    }

    fn send(&mut self, nr: usize, call: u64, asks: Vec<Ask>) {
        let within = nanos(self.rules.timing.call_timeout());
        let life = self.processes[nr].life;
        let (mut landing, mut kind) = (Vec::new(), (Lane::Background, true));
        for (place, (seat, number)) in asks.iter().enumerate() {
            let process = &mut self.processes[nr];
            let Some(asked) = process.elections[*seat].asked.as_mut().filter(|asked| asked.number == *number) else {
                continue;
            };
            let again = asked.sent.replace((call, place)).is_some();
            kind = (asked.lane, asked.what.reads());
            landing.push((*seat, asked.what.clone()));
            match &asked.what {
                What::Read => {
                    process.subscriptions.read_sent(*seat);
                    self.checks.reads[nr][*seat] += 1;
                }
                What::Swap { record, .. } | What::Renew { record } => {
                    process.subscriptions.write_sent(*seat, record.nonce, record.names());
                }
            }
            if !again {
                self.after(within, Event::TimeOut(nr, life, (*seat, *number)));
            }
        }
        self.say(Some(nr), || {
            let seats: Vec<_> = asks.iter().map(|(seat, _)| seat).collect();
            format!("-> call {call}, {:?}, {} {seats:?}", kind.0, if kind.1 { "reads" } else { "writes" })
        });
        let asks = asks.into_iter().map(Some).collect();
        self.processes[nr].calls.insert(call, Calling { lane: kind.0, reads: kind.1, asks });
        let delay = self.some_time();
        self.after(delay, Event::Land(Landing { process: nr, life, call, asks: landing }));
    }

    pub(super) fn answered(&mut self, nr: usize, life: u32, call: u64, place: usize, answer: Answer) {
        let process = &mut self.processes[nr];
        let Some(calling) = process.calls.get(&call).filter(|_| process.life == life) else { return };
        let Some((seat, number)) = calling.asks.get(place).copied().flatten() else { return };
        process.let_go(call, place);
        if !process.waits((seat, number)) {
            return;
        }
        let election = &mut process.elections[seat];
        election.asked = None;
        match &answer.input {
            Input::Read(Ok(_)) => {
                election.seen_at = answer.done_at;
                election.unsettled = false;
                process.subscriptions.read_answered(seat);
            }
            Input::Written(answered) => {
                if matches!(answered, Ok(tenure_protocol::Swap::Done { .. })) {
                    election.seen_at = answer.done_at;
                } else {
                    self.checks.reasons[nr][seat] += 1;
                }
                self.processes[nr].elections[seat].unsettled = *answered == Err(Fault::Unknown);
            }
            _ => self.checks.reasons[nr][seat] += 1,
        }
        self.step(nr, seat, answer.input);
    }

    pub(super) fn call_ended(&mut self, nr: usize, life: u32, call: u64, caused_by_one: bool) {
        let process = &mut self.processes[nr];
        let Some(calling) = (process.life == life).then(|| process.calls.remove(&call)).flatten() else { return };
        let left: Vec<Ask> = calling.asks.into_iter().flatten().collect();
        let left = if caused_by_one {
            process.admission.take_apart(call, left)
        } else {
            process.admission.ended(call);
            left
        };
        for ask in left {
            self.fail(nr, ask, if caused_by_one { Fault::Refused } else { Fault::Unknown });
        }
    }

    pub(super) fn timed_out(&mut self, nr: usize, life: u32, ask: Ask) {
        let process = &mut self.processes[nr];
        if process.life == life && process.waits(ask) {
            if let Some((call, place)) = process.elections[ask.0].asked.as_ref().and_then(|asked| asked.sent) {
                process.let_go(call, place);
            }
            self.check_time_out(nr, ask.0);
            self.fail(nr, ask, Fault::Unknown);
        }
    }

    fn fail(&mut self, nr: usize, (seat, number): Ask, fault: Fault) {
        let election = &mut self.processes[nr].elections[seat];
        let Some(asked) = election.asked.take_if(|asked| asked.number == number) else { return };
        election.unsettled |= !asked.what.reads() && fault == Fault::Unknown;
        self.checks.reasons[nr][seat] += 1;
        let input = asked.what.failed(fault);
        self.step(nr, seat, input);
    }

    pub(super) fn hears(&mut self, nr: usize, life: u32, hears: bool) {
        // A watch that was cut before its confirmation arrived has not begun.
        if self.processes[nr].life != life || (hears && !self.listens(nr)) {
            return;
        }
        self.say(Some(nr), || format!("<- {}", if hears { "the store listens" } else { "a gap" }));
        self.processes[nr].hears = (hears, self.now);
        self.checks.reasons[nr].iter_mut().for_each(|reasons| *reasons += 1);
        let notified = self.processes[nr].subscriptions.set_listening(hears);
        self.on_notifications(nr, notified);
    }

    pub(super) fn pushed(&mut self, nr: usize, life: u32, seat: usize, nonce: u64, names: Option<super::store::Names>) {
        // Pushes that were in flight when the watch was cut are lost.
        if self.processes[nr].life != life || !self.processes[nr].hears.0 {
            return;
        }
        self.say(Some(nr), || format!("<- seat {seat} has changed"));
        self.checks.reasons[nr][seat] += 1;
        let subscriptions = &mut self.processes[nr].subscriptions;
        let notified = match self.plan.detail {
            PushDetail::Nothing => subscriptions.holder(seat, None, None),
            PushDetail::Nonce => subscriptions.holder(seat, Some(nonce), None),
            PushDetail::Names => subscriptions.holder(seat, None, Some(names)),
        };
        self.on_notifications(nr, notified);
    }

    fn on_notifications(&mut self, nr: usize, notified: Vec<(usize, Input)>) {
        for (seat, input) in notified {
            self.step(nr, seat, input);
        }
    }
}
