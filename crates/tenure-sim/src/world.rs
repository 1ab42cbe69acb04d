//! The world: events in true time, the nodes, the store, and the faults.
//!
//! - this file: the event queue, the run, and what faults can do to the world
//! - `world/calls.rs`: calls to the store, with time-outs on the node's own clock
//! - `world/processes.rs`: processes start, pause and are killed; inputs reach them
//! - `world/acts.rs`: the actions of a machine are performed, and the work of its terms runs
//! - `world/sessions.rs`: heartbeats, and notifications of the end of a session
//! - `world/watches.rs`: the pushes of the store
//! - `world/received.rs`: notifications of each write, for stores that send them
//! - `world/board.rs`: the board: requests to the leader, and reads of the roster
//! - `world/roster.rs`: the roster: how processes announce themselves
//! - `world/wills.rs`: what the guard of a killed process does about its seat
//! - `world/eligible.rs`: which candidates nothing keeps from the seat

mod acts;
mod board;
mod calls;
mod eligible;
mod processes;
mod received;
mod roster;
mod sessions;
mod watches;
mod wills;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tenure_protocol::{Dice, Input, Score, Token};

use crate::clock::{Time, nanos};
use crate::driven::Parts;
use crate::faults::{self, FaultKind};
use crate::invariants::{self, Invariant, What};
use crate::node::{Arrival, Node, NodeNr};
use crate::outcome::{Outcome, Stats, Violation};
use crate::plan::{Plan, Weather};
use crate::store::{self, Model, SessionId};
use calls::Call;
pub(crate) use received::{Received, WritePush};
pub(crate) use roster::Roster;

/// A future event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A process starts.
    Start(NodeNr),
    /// An input reaches this start of a process.
    Arrive(NodeNr, u32, Arrival),
    /// A process continues after a pause.
    Resume(NodeNr, u32),
    /// A call reaches the store.
    Effect(u64),
    /// A process sends a heartbeat.
    BeatDue(NodeNr, u32),
    /// A heartbeat reaches the store.
    Beat(sessions::Heartbeat),
    /// A session may have expired.
    SessionExpiry(SessionId),
    /// A watch reaches the store.
    WatchArrives(NodeNr, u32, crate::node::Watch),
    /// A node starts to listen for writes.
    Listen(NodeNr, u32),
    /// A call for the board reaches the store.
    Board(board::BoardCall),
    /// An announcement of a process reaches the store.
    Announce(roster::AnnounceCall),
    /// A process reports its health.
    Report(NodeNr, u32, Score),
    /// A last will is executed: it reads the seat, and later its write arrives.
    WillReads(wills::Execution),
    WillWrites(wills::Execution, store::Write),
    /// The term of a node may end by the clock, which cuts its work.
    Cut(NodeNr, u32, Token),
    Strike(FaultKind),
    /// The store's clock is set forward.
    ClockForward,
    /// All faults stop.
    Quiet,
}

/// The world of one seed.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Time,
    pub(crate) dice: Dice,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Box<dyn Model>,
    pub(crate) roster: Roster,
    /// A term that the store has forgotten, and that may still be current or whose token might be reused.
    pub(crate) lost: Option<Lost>,
    /// When the store last forgot something.
    lost_at: Option<Time>,
    /// Until when all writes fail, and how each is answered.
    pub(crate) writes_fail: Option<(Time, Input)>,
    /// When the store's clock was last set back, and last set forward.
    pub(crate) last_step: [Option<Time>; 2],
    /// When a candidate first led after all faults had stopped.
    pub(crate) led_after_quiet: Option<Time>,
    last_leader: Option<(NodeNr, u32)>,
    make: Parts,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
    calls: BTreeMap<u64, Call>,
    /// Bids that have not reached the store so far.
    strays: Vec<u64>,
    invariants: Vec<Box<dyn Invariant>>,
    violation: Option<Violation>,
    stats: Stats,
    timeline: Option<Vec<String>>,
}

/// A term that the store has forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) token: Token,
    pub(crate) over_at: Time,
}

impl World {
    pub(crate) fn new(plan: Plan, make: Parts, traced: bool) -> Self {
        let mut dice = Dice::new(plan.seed);
        let nodes = (0..plan.parts.len()).map(|nr| processes::node(&plan, nr, &mut dice, make)).collect();
        let mut world = Self {
            store: store::build(&plan),
            invariants: invariants::all(&plan),
            plan,
            now: 0,
            dice,
            nodes,
            roster: Roster::default(),
            lost: None,
            lost_at: None,
            writes_fail: None,
            last_step: [None; 2],
            led_after_quiet: None,
            last_leader: None,
            make,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            calls: BTreeMap::new(),
            strays: Vec::new(),
            violation: None,
            stats: Stats::default(),
            timeline: traced.then(Vec::new),
        };
        let spread = if world.dice.chance(700) { 5 } else { 1 };
        for node in 0..world.nodes.len() {
            let delay = world.dice.below(nanos(world.plan.longest_lease()) / spread);
            world.start_in(node, delay);
        }
        for fault in FaultKind::ALL {
            if world.plan.faults.has(fault) {
                world.plan_strike(fault);
            }
        }
        world.after(world.plan.quiet_at, Event::Quiet);
        world
    }

    /// Runs until the world ends or an invariant is violated.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(Reverse((at, id))) = self.queue.pop() {
            if at > self.plan.ends_at {
                break;
            }
            self.now = at;
            if let Some(event) = self.events.remove(&id) {
                self.happen(event);
                self.note_leader();
                self.check(&What::Moved);
            }
            if self.violation.is_some() {
                break;
            }
        }
        if self.violation.is_none() {
            self.now = self.plan.ends_at;
            self.check(&What::Finished);
        }
        Outcome {
            kind: self.plan.kind.name(),
            violation: self.violation,
            stats: self.stats,
            timeline: self.timeline.unwrap_or_default(),
        }
    }

    fn note_leader(&mut self) {
        let Some(nr) = self.nodes.iter().position(|node| node.leads(self.now)) else { return };
        if self.now >= self.plan.quiet_at && self.led_after_quiet.is_none() {
            self.led_after_quiet = Some(self.now);
            let took = self.now - self.plan.quiet_at;
            self.stats.slowest_recovery = took as f64 / nanos(self.plan.longest_lease()) as f64;
        }
        let leader = Some((nr, self.nodes[nr].life));
        if leader != self.last_leader {
            self.stats.hand_overs += u64::from(self.last_leader.is_some());
            self.last_leader = leader;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(node) => self.start(node),
            Event::Arrive(node, life, arrival) => self.arrive(node, life, arrival),
            Event::Resume(node, life) => self.resume(node, life),
            Event::Effect(call) => self.take_effect(call),
            Event::BeatDue(node, life) => self.send_beat(node, life),
            Event::Beat(beat) => self.beat_arrives(beat),
            Event::SessionExpiry(session) => self.session_may_be_over(session),
            Event::WatchArrives(node, life, watch) => self.watch_arrives(node, life, watch),
            Event::Listen(node, life) => self.start_listening(node, life),
            Event::Board(call) => self.board_called(call),
            Event::Announce(call) => self.announcement_arrives(call),
            Event::Report(node, life, score) => {
                if self.now < self.plan.quiet_at {
                    self.arrive(node, life, Arrival::Notification(Input::Health(score)));
                }
            }
            Event::WillReads(execution) => self.will_reads(execution),
            Event::WillWrites(execution, write) => self.will_writes(execution, &write),
            Event::Cut(node, life, token) => self.cut_work(node, life, token),
            Event::ClockForward => {
                if self.now < self.plan.quiet_at && faults::clock_steps::step(self, true) {
                    self.count(FaultKind::ClockSteps);
                }
            }
            Event::Strike(fault) => {
                if self.now < self.plan.quiet_at {
                    if fault.strike(self) {
                        self.count(fault);
                        self.plan_strike(fault);
                    } else {
                        // Its guard refused. The right moment may come soon.
                        let soon = self.dice.below(nanos(self.plan.longest_lease()) / 5);
                        self.after(soon, Event::Strike(fault));
                    }
                }
            }
            Event::Quiet => self.fall_quiet(),
        }
    }

    /// Schedules an event after this much true time.
    pub(crate) fn after(&mut self, delay: Time, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    pub(crate) fn at(&mut self, at: Time, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((at.max(self.now), self.next)));
        self.events.insert(self.next, event);
    }

    fn plan_strike(&mut self, fault: FaultKind) {
        let Some(leases) = fault.leases_between() else { return };
        let most = if self.plan.weather == Weather::Focused { leases } else { leases * 2 };
        let delay = self.dice.below(nanos(self.plan.longest_lease()) * most);
        self.after(delay, Event::Strike(fault));
    }

    fn fall_quiet(&mut self) {
        self.say(None, || "all faults stop".into());
        self.writes_fail = None;
        for node in 0..self.nodes.len() {
            self.nodes[node].cut_off_until = 0;
            if self.nodes[node].paused {
                self.resume(node, self.nodes[node].life);
            }
            if !self.nodes[node].runs() {
                self.start(node);
            }
            // Unhealthy candidates recover.
            self.input(node, Input::Health(Score::FULL));
        }
    }

    pub(crate) fn check(&mut self, what: &What<'_>) {
        if self.violation.is_some() {
            return;
        }
        let mut invariants = std::mem::take(&mut self.invariants);
        for invariant in &mut invariants {
            if let Err(broken) = invariant.see(self, what) {
                let violation = Violation { invariant: invariant.name(), what: broken };
                self.say(None, || format!("BROKEN: {}: {}", violation.invariant, violation.what));
                self.violation = Some(violation);
                break;
            }
        }
        self.invariants = invariants;
    }

    /// Adds a line to the timeline, if there is one.
    pub(crate) fn say(&mut self, node: Option<NodeNr>, words: impl FnOnce() -> String) {
        if let Some(timeline) = &mut self.timeline {
            let who = node.map_or("-".to_owned(), |nr| format!("{}", self.nodes[nr].me));
            timeline.push(format!("{:>10.4}  {who:<8} {}", self.now as f64 / 1e9, words()));
        }
    }

    pub(crate) fn count(&mut self, fault: FaultKind) {
        *self.stats.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn stats(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Picks a running node: usually the leader, because faults of followers have little effect.
    pub(crate) fn pick_node(&mut self) -> Option<NodeNr> {
        let leader = self.nodes.iter().position(|node| node.current(self.now).is_some());
        let leader = leader.filter(|_| self.dice.chance(600));
        let any = self.dice.below(self.nodes.len() as u64) as usize;
        Some(leader.unwrap_or(any)).filter(|&node| self.nodes[node].runs())
    }

    /// Returns whether every running candidate has seen the holder and term that the seat names now, so that it
    /// would notice their loss. If a lapse is determined by versions or by the store's clock, they must have
    /// seen the last renewal, too: a candidate cannot notice the loss of a record that it never saw.
    pub(crate) fn everyone_knows_the_seat(&mut self) -> bool {
        self.may_start();
        let shelf = self.store.shelf();
        let names = shelf.names();
        let version = shelf.seat.as_ref().map(|kept| &kept.version);
        let has_sessions = self.plan.kind.has_sessions();
        let knows = |node: &Node| node.seen == Some(names) && (has_sessions || node.seen_version.as_ref() == version);
        self.lost.is_none()
            && names.is_some()
            && self.nodes.iter().all(|node| !node.runs() || knows(node))
            && self.nodes.iter().any(|node| node.runs() && node.asked_to_stop.is_none() && node.rules.stands)
    }

    /// Returns whether the store has ever forgotten a write.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.lost_at.is_some()
    }

    /// Makes the store forget that this term was ever won.
    pub(crate) fn lose(&mut self, token: Token) {
        let lease = nanos(self.plan.longest_lease());
        self.lost = Some(Lost { token, over_at: self.now + lease + lease / 10 });
        self.lost_at = Some(self.now);
        self.trouble_all();
        self.let_strays_land();
    }

    /// Returns whether a candidate may start that has not seen the seat yet. It must not start while it could
    /// miss a term that was lost, or reuse its token.
    pub(crate) fn may_start(&mut self) -> bool {
        let Some(lost) = self.lost else { return true };
        let shelf = self.store.shelf();
        let outnumbered = shelf.has_floor() || shelf.names().is_some_and(|(_, token)| token > lost.token);
        if outnumbered && self.now >= lost.over_at {
            self.lost = None;
        }
        self.lost.is_none()
    }
}
