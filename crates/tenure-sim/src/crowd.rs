//! A world with many seats: a few processes, each with an election about every seat. The calls of a process leave by
//! the real [`Admission`](tenure_protocol::Admission), and its news come in by the real
//! [`Subscriptions`](tenure_protocol::Subscriptions).
//!
//! - here: the queue, the run, and what goes wrong
//! - `crowd/process.rs`: a process: its machines, its calls, what it is told
//! - `crowd/store.rs`: the store: calls land, answers and pushes leave
//! - `crowd/checks.rs`: what must hold
//!
//! In *clear* weather every call is answered, though some take long and one seat at a time may be odd: a call that it
//! is in fails as a whole. In *rough* weather calls and answers get lost, too, and processes are killed.

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

/// What the store of this world is called.
pub(crate) const KIND: &str = "many seats, calls in batches";

const LEASE: Duration = Duration::from_secs(15);
/// How long the world lasts, in leases, and for how much of that nothing goes wrong any more at its end.
const LEASES: u64 = 40;
const QUIET: u64 = 6;

/// What this seed stands for.
struct Plan {
    seats: usize,
    reads: BatchLimits,
    writes: BatchLimits,
    clear: bool,
    /// How long a call takes in each direction, at most.
    slowest: Time,
    /// What a push says.
    said: PushDetail,
}

/// What a push says of the seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushDetail {
    Nothing,
    Nonce,
    Names,
}

/// Something that will happen. A process is named with its life, as it may be another by then.
enum Event {
    Start(usize),
    /// An election begins.
    Begin(usize, u32, usize),
    Wake(usize, u32, usize, u64),
    /// A call reaches the store.
    Land(Landing),
    /// The store has answered for the ask at this place of a call.
    Answer(usize, u32, u64, usize, Answer),
    /// A call has come to its end; whether nothing of it has happened because of one seat.
    CallEnds(usize, u32, u64, bool),
    TimeOut(usize, u32, Ask),
    /// The store begins to listen on behalf of a process.
    Subscribe(usize, u32),
    /// A process takes in that the store listens, or that it did not for a while.
    Hears(usize, u32, bool),
    Push(usize, u32, usize, u64, Option<store::Names>),
    Strike,
}

/// What an ask is answered with, and when the store did it.
#[derive(Clone, Debug)]
struct Answer {
    input: Input,
    done_at: Time,
}

/// The world that one seed stands for.
pub(crate) struct Crowd {
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
            said: [PushDetail::Nothing, PushDetail::Nonce, PushDetail::Names][dice.below(3) as usize],
        }
    }
}

impl Crowd {
    pub(crate) fn new(seed: u64, make: Parts, traced: bool) -> Self {
        let mut dice = Dice::new(seed ^ 0x00c0_de0f_c0de);
        let plan = Plan::of(&mut dice);
        let timing = Durations::of(LEASE).check().expect("the usual durations fit");
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

    /// Runs to the end, or to the first broken promise.
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
            Event::Answer(process, life, call, place, answer) => self.answered(process, life, call, place, answer),
            Event::CallEnds(process, life, call, caused_by_one) => self.call_ended(process, life, call, caused_by_one),
            Event::TimeOut(process, life, ask) => self.timed_out(process, life, ask),
            Event::Subscribe(process, life) => self.subscribe(process, life),
            Event::Hears(process, life, hears) => self.hears(process, life, hears),
            Event::Push(process, life, seat, nonce, names) => self.pushed(process, life, seat, nonce, names),
            Event::Strike => self.strike(),
        }
    }

    /// Something goes wrong, or somebody hands over.
    fn strike(&mut self) {
        if self.is_quiet() {
            self.set_odd(None);
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
                let odd = self.store.odd.is_none().then_some(seat);
                self.set_odd(odd);
            }
            10 => self.kill(process),
            _ => self.store.loses = self.store.loses.is_none().then_some(300),
        }
        let soon = self.dice.below(nanos(LEASE) / 2);
        self.after(soon, Event::Strike);
    }

    fn set_odd(&mut self, odd: Option<usize>) {
        if self.store.odd != odd {
            self.say(None, || format!("the odd seat is {odd:?}"));
            self.store.odd = odd;
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
