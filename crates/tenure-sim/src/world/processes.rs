//! Processes start, pause and are killed; and inputs reach them.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_protocol::{
    Candidate, Change, DataIdentity, Dice, Fault, Incarnation, Input, Occasion, PresenceInput, Reading, Swap, Token,
};

use super::{Call, Event, Received, World};
use crate::clock::{LocalClock, Time, nanos};
use crate::driven::Parts;
use crate::faults;
use crate::health::Health;
use crate::invariants::What;
use crate::node::{Announcer, Arrival, Node, NodeNr};
use crate::plan::{Kind, Plan};
use crate::store::session_in;

/// Creates a process that has not started yet.
pub(super) fn node(plan: &Plan, nr: NodeNr, dice: &mut Dice, make: Parts) -> Node {
    let clock = LocalClock::new(dice.below(1 << 50), plan.parts[nr].ppm);
    Node {
        life: 0,
        me: Candidate { id: format!("node-{nr}").into(), incarnation: Incarnation::from_bits(0) },
        clock,
        rules: plan.rules(nr),
        occasion: None,
        machine: None,
        announcer: Announcer::new((make.presence)()),
        resting: false,
        paused: false,
        inbox: VecDeque::new(),
        term: None,
        work: Vec::new(),
        call: None,
        watch: None,
        received: Received::default(),
        wake: None,
        asked_to_stop: None,
        session: None,
        seen: None,
        seen_version: None,
        highest_seen: Token::ZERO,
        identity: 0,
        pushed: None,
        failed: (0, 0),
        cut_off_until: 0,
        health: Health::default(),
        untroubled_at: 0,
    }
}

impl World {
    /// Starts a process after this much true time.
    pub(crate) fn start_in(&mut self, node: NodeNr, delay: Time) {
        self.after(delay, Event::Start(node));
    }

    pub(super) fn start(&mut self, nr: NodeNr) {
        if self.nodes[nr].runs() {
            return;
        }
        if self.nodes[nr].resting && self.now >= self.plan.quiet_at && self.another_stands(nr) {
            // This process may run without an election for any time, and must not keep others from leading.
            return;
        }
        if !self.may_start() {
            return self.start_in(nr, nanos(self.plan.longest_lease()) / 4);
        }
        let mut fresh = node(&self.plan, nr, &mut self.dice, self.make);
        if self.nodes[nr].machine.is_some() {
            // The next election deals with what the former one has left in the seat.
            self.check(&What::Gone(nr));
        }
        let former = &mut self.nodes[nr];
        if former.resting {
            std::mem::swap(&mut fresh.announcer, &mut former.announcer);
            // The same process. The numbers of calls tell inputs for its former election apart.
            fresh.me = former.me.clone();
            (fresh.life, fresh.clock, fresh.session) = (former.life, former.clock, former.session.clone());
            fresh.cut_off_until = former.cut_off_until;
        } else {
            // The same id, but another incarnation.
            let bits = u128::from(self.dice.roll()) << 64 | u128::from(self.dice.roll());
            (fresh.me.incarnation, fresh.life) = (Incarnation::from_bits(bits), former.life + 1);
        }
        let (life, has_session) = (fresh.life, former.resting);
        if let Some(occasions) = self.plan.occasions {
            // Clocks differ a little, so some are early for the next occasion.
            let number = 1 + (self.now + self.dice.below(occasions.every / 8)) / occasions.every;
            let occasion = Occasion::new(number, Duration::ZERO);
            fresh.rules.occasion = Some(if occasions.resumes { occasion.resumable() } else { occasion });
            fresh.occasion = Some(number);
        }
        fresh.machine = Some((self.make.machine)(fresh.me.clone(), fresh.rules.clone(), self.dice.roll()));
        self.nodes[nr] = fresh;
        self.say(Some(nr), || format!("starts (life {life})"));
        self.trouble(nr);
        self.announce(nr);
        if self.plan.kind.has_sessions() && !has_session {
            self.send_beat(nr, life);
        }
        self.cut_notifications(nr, 0);
        self.input(nr, Input::Start);
    }

    fn another_stands(&self, nr: NodeNr) -> bool {
        self.nodes.iter().enumerate().any(|(other, node)| other != nr && node.runs() && node.rules.stands)
    }

    /// Kills a process, together with its work and without any notification.
    pub(crate) fn kill(&mut self, nr: NodeNr) {
        self.check(&What::Gone(nr));
        let node = &mut self.nodes[nr];
        node.machine = None;
        node.resting = false;
        node.term = None;
        node.work.clear();
        node.call = None;
        node.watch = None;
        node.session = None;
        node.inbox.clear();
        node.life += 1;
        let who = node.me.incarnation;
        self.store.process_gone(who);
        if self.plan.kind == Kind::Lock {
            self.holder_changed();
        }
    }

    pub(crate) fn pause(&mut self, nr: NodeNr, lasts: Time) {
        self.nodes[nr].paused = true;
        self.say(Some(nr), || format!("pauses for {:.1} s", lasts as f64 / 1e9));
        self.after(lasts, Event::Resume(nr, self.nodes[nr].life));
    }

    pub(super) fn resume(&mut self, nr: NodeNr, life: u32) {
        if self.nodes[nr].life != life || !self.nodes[nr].paused {
            return;
        }
        self.nodes[nr].paused = false;
        self.say(Some(nr), || "resumes".into());
        self.trouble(nr);
        // Checks what it believes before it has processed any input.
        self.check(&What::Resumed);
        let mut waiting: Vec<Arrival> = self.nodes[nr].inbox.drain(..).collect();
        // An answer that arrived in time and its time-out are both pending: either may be processed first.
        if self.dice.chance(500) {
            waiting.reverse();
        }
        for arrival in waiting {
            self.arrive(nr, life, arrival);
        }
    }

    /// Delivers an input to the machine as soon as its process runs.
    pub(crate) fn input(&mut self, nr: NodeNr, input: Input) {
        let node = &mut self.nodes[nr];
        if input == Input::Stop && node.runs() {
            node.asked_to_stop = Some(self.now);
        }
        self.arrive(nr, self.nodes[nr].life, Arrival::Notification(input));
    }

    pub(super) fn arrive(&mut self, nr: NodeNr, life: u32, arrival: Arrival) {
        let node = &mut self.nodes[nr];
        if node.life != life || !node.lives() {
            return;
        }
        if node.paused {
            return node.inbox.push_back(arrival);
        }
        match arrival {
            Arrival::Wake(moment) => {
                if node.wake == Some(moment) {
                    node.wake = None;
                    self.step(nr, Input::Wake);
                }
            }
            Arrival::Answer { call, input } => {
                if node.call == Some(call) {
                    node.call = None;
                    self.answered(nr, call, input);
                }
            }
            Arrival::TimeOut { call } => {
                if node.call == Some(call) {
                    node.call = None;
                    let was_read = self.calls.get(&call).is_some_and(|call| call.is_read());
                    let fault = Err(Fault::Unknown);
                    self.say(Some(nr), || "its call has timed out".into());
                    self.step(nr, if was_read { Input::Read(fault) } else { Input::Written(Err(Fault::Unknown)) });
                }
            }
            Arrival::PresenceWake(moment) => {
                if node.announcer.wake == Some(moment) {
                    node.announcer.wake = None;
                    self.step_presence(nr, PresenceInput::Wake);
                }
            }
            Arrival::PresenceAnswer { call, input } => {
                if node.announcer.calls.remove(&call).is_some() {
                    self.step_presence(nr, input);
                }
            }
            Arrival::Notification(input) => {
                if input == Input::Changed(Change::SessionOver)
                    && let Some(term) = &mut node.term
                {
                    term.knows_of_loss = true;
                }
                if let Input::Released(release) = &input {
                    let life = release.identity.as_ref().map_or(0, life_of);
                    node.pushed = Some((release.version.clone(), life));
                }
                self.step(nr, input);
            }
            Arrival::HolderOver(of) => {
                // The engine compares the session with that of the seat as last seen.
                let is_of_seen = node.seen == Some(of);
                self.step(nr, if is_of_seen { Input::HolderOver } else { Input::Changed(Change::Look) });
            }
            Arrival::Notified(news) => self.receive(nr, news),
            Arrival::Returned(token) => self.work_returned(nr, token),
            Arrival::Beat { session, sent, alive } => self.beat_answered(nr, session, sent, alive),
        }
    }

    /// Delivers an answer to the machine, and records what the node has seen.
    fn answered(&mut self, nr: NodeNr, call: u64, mut input: Input) {
        let own = self.nodes[nr].me.incarnation;
        match &mut input {
            Input::Read(Ok(reading)) => {
                if self.plan.kind == Kind::Received {
                    let set_back = self.calls.get(&call).map_or(0, Call::set_back);
                    self.set_received(nr, set_back, reading);
                }
                self.nodes[nr].sees(reading);
            }
            Input::Written(Ok(Swap::Done { version, since, granted })) => {
                faults::severed::after_write(self, nr);
                let Some(call) = self.calls.get(&call) else { return };
                self.nodes[nr].failed = (0, 0);
                self.nodes[nr].seen_version = Some(version.clone());
                if let Some(record) = call.record() {
                    let holder = record.holder.as_ref().map(|_| own);
                    self.nodes[nr].seen = Some(Some((holder, record.token)));
                }
                if self.plan.kind.has_sessions() {
                    let proof = self.nodes[nr].session.as_ref().filter(|own| Some(own.id) == session_in(version));
                    let beats = call.renews() && self.plan.renewal_beats;
                    let Some(proof) = proof else {
                        return self.step(nr, Input::Written(Err(Fault::Unknown)));
                    };
                    *since = (!beats).then_some(proof.proved);
                    *granted = Some(self.granted(nr));
                }
            }
            _ => {}
        }
        self.step(nr, input);
    }

    /// Steps the machine, and performs its actions.
    pub(super) fn step(&mut self, nr: NodeNr, input: Input) {
        let now = self.nodes[nr].clock.read(self.now);
        let Some(mut machine) = self.nodes[nr].machine.take() else { return };
        self.say(Some(nr), || format!("  <- {}", crate::words::input(&input)));
        let won_on = match &input {
            Input::Written(Ok(Swap::Done { version, .. })) => session_in(version),
            _ => None,
        };
        self.check(&What::TakesIn(nr, &input));
        if let Input::Health(score) = input {
            let Node { health, rules, .. } = &mut self.nodes[nr];
            health.report(now, score, rules);
        }
        let mut out = Vec::new();
        machine.step(now, input, &mut out);
        self.nodes[nr].machine = Some(machine);
        self.stats().steps += 1;
        for action in out {
            self.say(Some(nr), || format!("  -> {}", crate::words::action(&action, now)));
            self.act(nr, &action, won_on);
            self.check(&What::Acted(nr, &action));
        }
        self.check(&What::Stepped(nr));
        if self.nodes[nr].resting {
            self.rest(nr);
        } else if self.nodes[nr].asked_to_stop == Some(Time::MAX) {
            self.stopped(nr);
        }
    }
}

impl Node {
    fn sees(&mut self, reading: &Reading) {
        let names = reading.seat.as_ref().map(|seat| seat.record.names());
        self.seen = Some(names);
        self.highest_seen = self.highest_seen.max(names.map_or(Token::ZERO, |(_, token)| token));
        self.seen_version = reading.seat.as_ref().map(|seat| seat.version.clone());
        if self.term.is_none() {
            self.failed = (0, 0);
        }
        if let Some(identity) = &reading.identity {
            self.identity = life_of(identity);
        }
        self.pushed = None;
        let own = self.me.incarnation;
        let is_over = reading.seat.as_ref().is_some_and(|seat| seat.life == tenure_protocol::Life::Over);
        if let Some(term) = &mut self.term
            && let Some((holder, token)) = names
        {
            term.knows_of_loss |= (holder, token) != (Some(own), term.token) || is_over;
        }
    }

    /// Returns whether work of this node's terms still runs, or only that of `token` if given.
    pub(crate) fn works(&self, token: Option<Token>) -> bool {
        self.work.iter().any(|work| token.is_none_or(|token| token == work.token))
    }
}

/// Returns the number in the identity of the store's data.
fn life_of(identity: &DataIdentity) -> u32 {
    identity.as_str().trim_start_matches("life ").parse().unwrap_or(0)
}
