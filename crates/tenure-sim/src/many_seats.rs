//! A world with many seats: a few processes, each with an election for every seat. The calls of a process leave
//! through the real [`Admission`](tenure_protocol::Admission), and its pushes arrive through the real
//! [`Subscriptions`](tenure_protocol::Subscriptions).
//!
//! - this file: the event queue, the run, and the faults
//! - `many_seats/process.rs`: a process: its machines, its calls, its notifications
//! - `many_seats/store.rs`: the store: calls take effect, answers and pushes leave
//! - `many_seats/checks.rs`: the invariants
//!
//! In *clear* weather every call is answered, though some take long, and one seat at a time may be faulty: a call
//! that contains it fails as a whole. In *rough* weather calls and answers are lost, too, and processes are
//! killed.

mod checks;
mod process;
mod store;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tenure_protocol::{BatchLimits, Dice, Durations, Input, Push, Rules};

use crate::clock::{Time, nanos};
use crate::driven::Parts;
use crate::outcome::{Outcome, Stats, Violation};
use checks::Checks;
use process::Process;
use store::{Landing, Store};

pub(crate) use checks::NAMES;
pub(crate) use process::Ask;

/// What the summary calls the store of this world.
pub(crate) const KIND: &str = "many seats, calls in batches";

const LEASE: Duration = Duration::from_secs(15);
/// How long the world lasts, in leases, and how much of that is free of faults at its end.
const LEASES: u64 = 40;
const QUIET: u64 = 6;

/// What a seed determines.
struct Plan {
    seats: usize,
    reads: BatchLimits,
    writes: BatchLimits,
    clear: bool,
    /// The longest time of a call, in each direction.
    slowest: Time,
    /// What a push says about a seat.
    detail: PushDetail,
}

/// What a push says about a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushDetail {
    Nothing,
    Nonce,
    Names,
}

/// A future event. A process is named with its life, because it may have restarted by then.
enum Event {
    Start(usize),
    /// An election begins.
    Begin(usize, u32, usize),
    Wake(usize, u32, usize, u64),
    /// A call reaches the store.
    Land(Landing),
    /// The store has answered the ask at this place of a call.
    Answer(usize, u32, u64, usize, Box<Answer>),
    /// A call has ended. The flag says whether it took no effect because of one seat.
    CallEnds(usize, u32, u64, bool),
    TimeOut(usize, u32, Ask),
    /// The store starts to listen on behalf of a process.
    Subscribe(usize, u32),
    /// A process is notified that the store listens, or that there was a gap.
    Listening(usize, u32, bool),
    Push(usize, u32, usize, u64, Option<store::Names>),
    Strike,
}

/// The answer to an ask, and when the store processed the ask.
#[derive(Clone, Debug)]
struct Answer {
    input: Input,
    done_at: Time,
}

/// The world of one seed.
pub(crate) struct ManySeats {
    plan: Plan,
    now: Time,
    dice: Dice,
    make: Parts,
    rules: Rules,
    processes: Vec<Process>,
    store: Store,
    checks: Checks,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
    violation: Option<Violation>,
    stats: Stats,
    timeline: Option<Vec<String>>,
}

impl Plan {
    fn of(dice: &mut Dice) -> Self {
        let most =
            |dice: &mut Dice| BatchLimits { seats: 1 + dice.below(6) as usize, calls: 1 + dice.below(3) as usize };
        Self {
            seats: 2 + dice.below(9) as usize,
            reads: most(dice),
            writes: most(dice),
            clear: dice.chance(600),
            slowest: nanos(LEASE) / 150,
            detail: [PushDetail::Nothing, PushDetail::Nonce, PushDetail::Names][dice.below(3) as usize],
        }
    }
}

impl ManySeats {
    pub(crate) fn new(seed: u64, make: Parts, traced: bool) -> Self {
        let mut dice = Dice::new(seed ^ 0x00c0_de0f_c0de);
        let plan = Plan::of(&mut dice);
        let timing = Durations::of(LEASE).check().expect("the default durations fit");
        let rules = Rules { push: Push::Proven, ..Rules::new(timing) };
        let processes = 2 + dice.below(3) as usize;
        let mut world = Self {
            checks: Checks::new(processes, plan.seats),
            store: Store::new(plan.seats, processes),
            processes: (0..processes).map(|_| Process::new(&plan, make)).collect(),
            plan,
            now: 0,
            dice,
            make,
            rules,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            violation: None,
            stats: Stats::default(),
            timeline: traced.then(Vec::new),
        };
        for nr in 0..processes {
            let delay = world.dice.below(nanos(LEASE) / 5);
            world.after(delay, Event::Start(nr));
        }
        world.after(nanos(LEASE), Event::Strike);
        world
    }

    /// Runs until the world ends or an invariant is violated.
    pub(crate) fn run(mut self) -> Outcome {
        let end = nanos(LEASE) * LEASES;
        while let Some(Reverse((at, id))) = self.queue.pop() {
            if at > end || self.violation.is_some() {
                break;
            }
            self.now = at;
            if let Some(event) = self.events.remove(&id) {
                self.happen(event);
                for process in 0..self.processes.len() {
                    self.call_waiting(process);
                }
                self.check();
            }
        }
        if self.violation.is_none() {
            self.now = end;
            self.check_progress();
        }
        let timeline = self.timeline.unwrap_or_default();
        Outcome { kind: KIND, violation: self.violation, stats: self.stats, timeline }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(process) => self.start(process),
            Event::Begin(process, life, seat) => self.begin(process, life, seat),
            Event::Wake(process, life, seat, number) => self.wake(process, life, seat, number),
            Event::Land(landing) => self.land(landing),
            Event::Answer(process, life, call, place, answer) => self.answered(process, life, call, place, *answer),
            Event::CallEnds(process, life, call, caused_by_one) => self.call_ended(process, life, call, caused_by_one),
            Event::TimeOut(process, life, ask) => self.timed_out(process, life, ask),
            Event::Subscribe(process, life) => self.subscribe(process, life),
            Event::Listening(process, life, hears) => self.hears(process, life, hears),
            Event::Push(process, life, seat, nonce, names) => self.pushed(process, life, seat, nonce, names),
            Event::Strike => self.strike(),
        }
    }

    /// Makes a fault or a hand-over happen.
    fn strike(&mut self) {
        if self.is_quiet() {
            self.set_faulty(None);
            return;
        }
        let process = self.dice.below(self.processes.len() as u64) as usize;
        let seat = self.dice.below(self.plan.seats as u64) as usize;
        match self.dice.below(if self.plan.clear { 10 } else { 14 }) {
            0..5 => {
                self.say(Some(process), || format!("seat {seat}: asked to step down"));
                self.step(process, seat, Input::StepDown);
            }
            5 => self.drop_waiting(process),
            6 => self.cut_watch(process),
            7..10 => {
                let faulty = self.store.faulty.is_none().then_some(seat);
                self.set_faulty(faulty);
            }
            10 => self.kill(process),
            _ => self.store.loses = self.store.loses.is_none().then_some(300),
        }
        let soon = self.dice.below(nanos(LEASE) / 2);
        self.after(soon, Event::Strike);
    }

    fn set_faulty(&mut self, faulty: Option<usize>) {
        if self.store.faulty != faulty {
            self.say(None, || format!("the faulty seat is {faulty:?}"));
            self.store.faulty = faulty;
            self.checks.odd_at = self.now;
        }
    }

    fn is_quiet(&self) -> bool {
        self.now >= nanos(LEASE) * (LEASES - QUIET)
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((self.now.saturating_add(delay), self.next)));
        self.events.insert(self.next, event);
    }

    fn say(&mut self, process: Option<usize>, words: impl FnOnce() -> String) {
        if let Some(timeline) = &mut self.timeline {
            let who = process.map_or("-".to_owned(), |nr| format!("p{nr}"));
            timeline.push(format!("{:>10.4}  {who:<8} {}", self.now as f64 / 1e9, words()));
        }
    }

    fn broken(&mut self, invariant: &'static str, what: String) {
        if self.violation.is_none() {
            self.say(None, || format!("BROKEN: {invariant}: {what}"));
            self.violation = Some(Violation { invariant, what });
        }
    }
}
