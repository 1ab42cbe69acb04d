//! The store: calls take effect, and answers and pushes leave. Followers only see that versions change.

use tenure_protocol::{Fault, Incarnation, Input, Life, Reading, Record, Seat, Swap, Token, Version};

use super::process::What;
use super::{Answer, Event, ManySeats};
use crate::clock::{Time, nanos};

/// The holder and term that a seat names.
pub(crate) type Names = (Option<Incarnation>, Token);

pub(super) struct Store {
    pub(super) seats: Vec<Option<(Record, Version)>>,
    /// When each seat last changed its holder or term.
    pub(super) changed_at: Vec<Time>,
    writes: u64,
    /// Which processes get pushes, and when the last push arrives at each, because pushes arrive in order.
    listens: Vec<Option<(u32, Time)>>,
    /// The faulty seat: a call that contains it fails as a whole.
    pub(super) faulty: Option<usize>,
    /// How many calls or answers in a thousand are lost.
    pub(super) loses: Option<u64>,
}

/// A call on its way to the store.
pub(super) struct Landing {
    pub(super) process: usize,
    pub(super) life: u32,
    pub(super) call: u64,
    pub(super) asks: Vec<(usize, What)>,
}

impl Store {
    pub(super) fn new(seats: usize, processes: usize) -> Self {
        Self {
            seats: vec![None; seats],
            changed_at: vec![0; seats],
            writes: 0,
            listens: vec![None; processes],
            faulty: None,
            loses: None,
        }
    }

    pub(super) fn names(&self, seat: usize) -> Option<Names> {
        let (record, _) = self.seats[seat].as_ref()?;
        Some(record.names())
    }

    fn read(&self, seat: usize) -> Reading {
        let seat = self.seats[seat].clone();
        Reading::of(seat.map(|(record, version)| Seat { record, version, life: Life::Observe }))
    }

    /// Returns whether a seat is what a write expects.
    fn is_expected(&self, seat: usize, what: &What) -> bool {
        match (what, &self.seats[seat]) {
            (What::Swap { expected: None, .. }, None) => true,
            (What::Swap { expected: Some(expected), .. }, Some((_, version))) => expected == version,
            (What::Renew { record: next }, Some((record, _))) => {
                record.holder.is_some() && record.holder == next.holder && record.token == next.token
            }
            _ => false,
        }
    }
}

impl ManySeats {
    pub(super) fn land(&mut self, Landing { process, life, call, asks }: Landing) {
        if self.is_lost() {
            self.say(Some(process), || format!("call {call} is lost"));
            return;
        }
        if asks.len() > 1 && asks.iter().any(|(seat, _)| self.store.faulty == Some(*seat)) {
            let delay = self.some_time();
            self.after(delay, Event::CallEnds(process, life, call, true));
            return;
        }
        let mut slowest = 0;
        for (place, (seat, what)) in asks.into_iter().enumerate() {
            let input = self.act(seat, what);
            if self.is_lost() {
                self.say(Some(process), || format!("the answer for seat {seat} in call {call} is lost"));
                continue;
            }
            let delay = self.some_time();
            slowest = slowest.max(delay);
            let answer = Answer { input, done_at: self.now };
            self.after(delay, Event::Answer(process, life, call, place, Box::new(answer)));
        }
        self.after(slowest + 1, Event::CallEnds(process, life, call, false));
    }

    fn act(&mut self, seat: usize, what: What) -> Input {
        if self.store.faulty == Some(seat) {
            return what.failed(Fault::Refused);
        }
        let (What::Swap { record, .. } | What::Renew { record }) = &what else {
            return Input::Read(Ok(self.store.read(seat)));
        };
        if !self.store.is_expected(seat, &what) {
            return Input::Written(Ok(Swap::Lost));
        }
        self.store.writes += 1;
        let version = Version::new(self.store.writes.to_string());
        let before = self.store.names(seat);
        self.store.seats[seat] = Some((record.clone(), version.clone()));
        if self.store.names(seat) != before {
            self.store.changed_at[seat] = self.now;
            self.push(seat, record.nonce);
        }
        Input::Written(Ok(Swap::Done { version, since: None, granted: None }))
    }

    fn push(&mut self, seat: usize, nonce: u64) {
        let names = self.store.names(seat);
        for process in 0..self.processes.len() {
            if let Some((life, last)) = self.store.listens[process] {
                let at = (self.now + self.some_time()).max(last + 1);
                self.store.listens[process] = Some((life, at));
                self.after(at - self.now, Event::Push(process, life, seat, nonce, names));
            }
        }
    }

    pub(super) fn subscribe(&mut self, process: usize, life: u32) {
        if self.processes[process].life != life {
            return;
        }
        let delay = self.some_time();
        self.store.listens[process] = Some((life, self.now + delay));
        self.after(delay, Event::Listening(process, life, true));
    }

    /// Cuts the watch of a process. It notices after a while, and listens again.
    pub(super) fn cut_watch(&mut self, process: usize) {
        let Some((life, _)) = self.store.listens[process].take() else { return };
        let noticed = self.dice.below(nanos(super::LEASE) / 10);
        self.after(noticed, Event::Listening(process, life, false));
        let again = noticed + self.dice.below(nanos(super::LEASE) * 3);
        self.after(again, Event::Subscribe(process, life));
    }

    pub(super) fn listens(&self, process: usize) -> bool {
        self.store.listens[process].is_some()
    }

    pub(super) fn stop_listening(&mut self, process: usize) {
        self.store.listens[process] = None;
    }

    fn is_lost(&mut self) -> bool {
        let loses = self.store.loses.filter(|_| !self.is_quiet()).unwrap_or(0);
        self.dice.chance(loses)
    }

    pub(super) fn some_time(&mut self) -> Time {
        1 + self.dice.below(self.plan.slowest)
    }
}
