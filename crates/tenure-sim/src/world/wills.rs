//! Last wills: what the guard of a killed process does about its seat.
//!
//! Every killed process leaves a will, also one that does not lead: its bid may be on its way. A will is executed late or
//! twice, and often while another candidate leads already, or the same process after a restart. Each execution reads the
//! seat, and then writes what the will says about that reading, however much later the write lands. A will that is lost is
//! a world without wills.

use tenure_protocol::Candidate;

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::FaultKind;
use crate::node::NodeNr;
use crate::plan::Kind;
use crate::store::{Write, Written};

/// A will that is being executed.
#[derive(Debug)]
pub(crate) struct Execution {
    candidate: Candidate,
    /// When its executor gives up.
    until: Time,
}

impl World {
    /// Leaves the will of a process that is about to die.
    pub(crate) fn leave_will(&mut self, nr: NodeNr) {
        // The kernel frees a lock by itself.
        if self.plan.kind == Kind::Lock || !self.plan.faults.has(FaultKind::Wills) {
            return;
        }
        let node = &self.nodes[nr];
        let (candidate, lease) = (node.me.clone(), nanos(node.rules.timing.lease()));
        for _ in 0..if self.dice.chance(200) { 2 } else { 1 } {
            let delay = if self.dice.chance(700) { lease / 100 } else { lease * 2 };
            let delay = 1 + self.dice.below(delay);
            let execution = Execution { candidate: candidate.clone(), until: self.now + delay + lease };
            self.after(delay, Event::WillReads(execution));
        }
    }

    /// An execution reads the seat.
    pub(super) fn will_reads(&mut self, execution: Execution) {
        let lease = nanos(self.plan.longest_lease());
        let nonce = self.dice.roll();
        let step = (self.make.will)(execution.candidate.clone(), &self.store.read(self.now), nonce);
        let Some((expected, record)) = step else { return };
        let identity = self.store.shelf().identity;
        let write = Write { expected: Some(expected), record, identity, session: None };
        let delay = if self.dice.chance(800) { lease / 100 } else { lease };
        let delay = 1 + self.dice.below(delay);
        self.after(delay, Event::WillWrites(execution, write));
    }

    /// The write of an execution reaches the store. If it loses, or its answer is lost, the executor reads again.
    pub(super) fn will_writes(&mut self, execution: Execution, write: &Write) {
        let before = self.store.shelf().names();
        let Written::Answer(_) = self.store.free(self.now, write) else { return };
        let names = self.store.shelf().names();
        if names != before {
            self.count(FaultKind::Wills);
            let id = execution.candidate.id.clone();
            self.say(None, || format!("the last will of {id} frees the seat"));
            self.notify_listeners();
            self.holder_changed();
        }
        if self.now < execution.until && self.dice.chance(500) {
            let delay = 1 + self.dice.below(nanos(self.plan.longest_lease()) / 50);
            self.after(delay, Event::WillReads(execution));
        }
    }
}
