//! Calls to the store. Each takes time, and its sender waits until the time-out on its own clock. The call can
//! still take effect after that.

use tenure_protocol::{Action, Fault, Input, Record, Swap, Version};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr};
use crate::plan::Kind;
use crate::store::{Write, Written};

/// A call that was sent.
pub(super) struct Call {
    node: NodeNr,
    life: u32,
    sent: Time,
    op: Op,
    fate: Fate,
    /// How often the seat had been set back when the call took effect.
    set_back: u32,
}

enum Op {
    Read,
    Swap(Write),
    Renew(Write),
}

impl Call {
    pub(super) fn is_read(&self) -> bool {
        matches!(self.op, Op::Read)
    }

    pub(super) fn set_back(&self) -> u32 {
        self.set_back
    }

    pub(super) fn renews(&self) -> bool {
        matches!(self.op, Op::Renew(_))
    }

    pub(super) fn record(&self) -> Option<&Record> {
        match &self.op {
            Op::Read => None,
            Op::Swap(write) | Op::Renew(write) => Some(&write.record),
        }
    }
}

impl World {
    pub(super) fn send(&mut self, nr: NodeNr, action: &Action) {
        let node = &self.nodes[nr];
        assert!(node.call.is_none(), "two calls in flight at once");
        let write = |expected: Option<_>, record: &Record| Write {
            record: record.clone(),
            // A version names the data that it is of.
            identity: match &node.pushed {
                Some((version, life)) if expected.as_ref() == Some(version) => *life,
                _ => node.identity,
            },
            expected,
            session: node.session.as_ref().map(|own| own.id),
        };
        let op = match action {
            Action::Swap { expected, record } => Op::Swap(write(expected.clone(), record)),
            Action::Renew { held, record } => Op::Renew(write(Some(held.clone()), record)),
            _ => Op::Read,
        };
        let (life, clock) = (node.life, node.clock);
        let times_out = clock.when(clock.read(self.now) + node.rules.timing.call_timeout());
        let sort = match &op {
            Op::Read => Sort::Read,
            Op::Swap(write) if !write.record.is_vacant() => Sort::Bid,
            Op::Swap(_) | Op::Renew(_) => Sort::Keep,
        };
        let fate = fate::of_call(self, nr, sort);
        self.next += 1;
        let id = self.next;
        self.nodes[nr].call = Some(id);
        self.calls.insert(id, Call { node: nr, life, sent: self.now, op, fate, set_back: 0 });
        if !fate.request_lost {
            self.after(fate.there, Event::Effect(id));
        } else if sort == Sort::Bid {
            self.strays.push(id);
        }
        self.at(times_out, Event::Arrive(nr, life, Arrival::TimeOut { call: id }));
    }

    /// Returns whether a bid that was lost on its way expects this version.
    pub(crate) fn a_stray_fits(&self, version: &Version) -> bool {
        self.strays.iter().filter_map(|id| self.calls.get(id)).any(|call| match &call.op {
            Op::Swap(write) => write.expected.as_ref() == Some(version),
            _ => false,
        })
    }

    /// Returns whether a read is in flight.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.nodes.iter().filter_map(|node| self.calls.get(&node.call?)).any(Call::is_read)
    }

    /// Lets lost bids land. A bid that was lost on its way may land at any time, but it matters only if the
    /// seat is again what the bid was to replace. So it lands then.
    pub(super) fn let_strays_land(&mut self) {
        let version = self.store.shelf().seat.as_ref().map(|kept| kept.version.clone());
        // Usually before its sender looks.
        let soon = nanos(self.plan.longest_lease()) / if self.dice.chance(700) { 50 } else { 5 };
        for id in std::mem::take(&mut self.strays) {
            let fits = self.calls.get(&id).is_some_and(|call| match &call.op {
                Op::Swap(write) => write.expected == version,
                _ => false,
            });
            if fits && self.dice.chance(700) {
                let delay = self.dice.below(soon);
                self.after(delay, Event::Effect(id));
            } else {
                self.strays.push(id);
            }
        }
    }

    /// Returns whether the effect of a late call is suppressed, because nothing is promised about it:
    ///
    /// - A bid from before a loss that lands after it, if the end of a holder counts at once or if the bidder's
    ///   lease is shorter than another's. To a third candidate, it looks like a rightful successor, and *its*
    ///   end like the end of the only leader.
    /// - A bid that lands late, when its election has stopped or was asked to, while its process keeps the
    ///   session: no machine may be left to notice it.
    /// - On one machine, any call of a process that is gone, because such a process writes nothing any more.
    fn is_held_back(&self, id: u64, call: &Call) -> bool {
        let short = || call.record().is_some_and(|record| record.lease < self.plan.longest_lease());
        let stale = matches!(call.op, Op::Swap(_))
            && self.lost_at.is_some_and(|lost| call.sent < lost)
            && (self.plan.kind.takes_over_at_once() || short());
        let node = &self.nodes[call.node];
        let stops = node.asked_to_stop.is_some() && node.call != Some(id) && self.plan.kind.has_sessions();
        let orphaned = matches!(call.op, Op::Swap(_)) && (node.has_ended() || stops);
        stale || orphaned || (self.plan.kind == Kind::Lock && self.nodes[call.node].life != call.life)
    }

    pub(super) fn take_effect(&mut self, id: u64) {
        let now = self.now;
        let Some(call) = self.calls.get(&id) else { return };
        if self.is_held_back(id, call) {
            return;
        }
        let (nr, life, fate) = (call.node, call.life, call.fate);
        let (before, writes) = (self.store.shelf().names(), self.store.shelf().writes);
        let fails = self.writes_fail.as_ref().filter(|(until, _)| now < *until && !call.is_read());
        let fails = fails.map(|(_, answer)| answer.clone());
        let fails_all = fails.is_some();
        let input = match (fails, &call.op, fate.refused) {
            (Some(answer), ..) => answer,
            (_, Op::Read, Some(fault)) => Input::Read(Err(fault)),
            (_, _, Some(fault)) => Input::Written(Err(fault)),
            (_, Op::Read, None) => Input::Read(Ok(self.store.read(now))),
            (_, Op::Swap(write), None) => written(self.store.swap(now, write)),
            (_, Op::Renew(write), None) => {
                let answer = self.store.renew(now, write);
                if self.plan.renewal_beats
                    && matches!(answer, Written::Answer(Swap::Done { .. }))
                    && let Some(session) = write.session
                {
                    self.store.beat(now, session);
                    self.expect_expiry(session);
                }
                written(answer)
            }
        };
        if fails_all {
            self.trouble(nr);
        }
        let shelf = self.store.shelf();
        let (written, set_back) = (shelf.writes != writes, shelf.set_back);
        if let Some(call) = self.calls.get_mut(&id) {
            call.set_back = set_back;
        }
        if written {
            self.notify_listeners();
        }
        if self.store.shelf().names() != before {
            let late = self.nodes[nr].call != Some(id);
            self.say(Some(nr), || format!("its write takes effect{}", if late { ", late" } else { "" }));
            self.holder_changed();
        }
        if !fate.reply_lost {
            self.after(fate.back, Event::Arrive(nr, life, Arrival::Answer { call: id, input }));
        }
    }
}

fn written(answer: Written) -> Input {
    Input::Written(match answer {
        Written::Answer(swap) => Ok(swap),
        Written::NoSession => Err(Fault::Refused),
    })
}
