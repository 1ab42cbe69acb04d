//! Which asks go to the store in one call, and when.
//!
//! ```text
//!  ask ─┐                     ┌▶ its answer
//!  ask ─┼─▶ queue ─▶ one call ─▶ its answer
//!  ask ─┘     ▲               └▶ its answer
//!             └ whoever comes while as many calls as may be are under way goes with the next one
//! ```
//!
//! A lone ask leaves at once. While calls are under way, asks of the same kind gather, and the next call takes
//! as many of them as the store can do at a time: the slower the store, the fewer calls it is asked for. A
//! thousand elections that start together would otherwise make a thousand calls, most of them given up before
//! their turn had come, made again, and given up again.
//!
//! # Why this is safe
//!
//! *When a call was sent.* A lease counts from the moment at which the machine asked, and the call leaves after
//! that. So an ask that has waited has lost some of the time it counts on, and gained none. Its time-out runs
//! only from when it left: time spent in the queue would let ten thousand starters expire unsent, for ever.
//!
//! *What an answer means.* Each ask is answered by itself, on a condition of its own. No call holds two writes of
//! one seat, as a candidate has one ask under way at a time, so what one ask did is never told to another.
//!
//! *When an ask is given up* before its call has left, it is left out. After that it is answered to nobody, and the call
//! goes on for the others.
//!
//! *Nothing is sent twice*, but for one case: a call of which the store says that nothing happened and that one
//! of the asks in it may be to blame. It is taken apart, until that one stands alone.
//!
//! *Who goes first.* Asks that keep a term share no call and no place with any others, so nothing that hangs
//! delays them. A holder's read is one of them: after a lost answer it reads the seat before it renews again.
//! Reads that settle a doubt about a write come next, as the seat may be ours, and others wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How soon an ask leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A holder's renewals and reads, and the release of a seat.
    Keep,
    /// A read after a write whose outcome is unknown.
    Settle,
    /// Looks and bids of candidates that hold nothing.
    Background,
}

/// Which asks may share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// How soon they leave.
    pub lane: Lane,
    /// Whether they read seats, or write them.
    pub reads: bool,
    /// The part of the store that they go to.
    pub shard: u64,
    /// Their lease.
    pub lease: Duration,
    /// How long each may take: a long one in the same call would hold up a short one.
    pub within: Duration,
}

/// How much a store takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Seats in one call.
    pub seats: usize,
    /// Calls of one [`Group`] that are under way at once.
    pub calls: usize,
}

/// A call that may leave now.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<A> {
    /// Its number.
    pub call: u64,
    /// What its asks have in common.
    pub group: Group,
    /// What is in it; at least one.
    pub asks: Vec<A>,
}

/// The asks that wait for a call, and the calls under way.
#[derive(Debug)]
pub struct Admission<A> {
    reads: BatchLimits,
    writes: BatchLimits,
    queues: BTreeMap<Group, Queue<A>>,
    underway: BTreeMap<u64, Group>,
    calls: u64,
}

#[derive(Debug)]
struct Queue<A> {
    waiting: VecDeque<(A, usize)>,
    /// Parts of a call that was taken apart. They leave before all others.
    parts: VecDeque<Vec<A>>,
    underway: usize,
}

/// A call is no longer than this, unless one ask alone is.
const MOST_BYTES: usize = 512 * 1024;

/// Into so many parts a call is taken apart.
const PARTS: usize = 8;

impl<A> Admission<A> {
    /// For a store that takes so much at a time.
    pub fn new(reads: BatchLimits, writes: BatchLimits) -> Self {
        let at_least_one = |most: BatchLimits| BatchLimits { seats: most.seats.max(1), calls: most.calls.max(1) };
        Self {
            reads: at_least_one(reads),
            writes: at_least_one(writes),
            queues: BTreeMap::new(),
            underway: BTreeMap::new(),
            calls: 0,
        }
    }

    /// Something is asked of the store, of about so many bytes.
    pub fn ask(&mut self, group: Group, ask: A, bytes: usize) {
        let queue = self.queues.entry(group).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            parts: VecDeque::new(),
            underway: 0,
        });
        queue.waiting.push_back((ask, bytes));
    }

    /// The next call to make, if there is one. Asks that nobody waits for any more are left out.
    pub fn next(&mut self, mut is_wanted: impl FnMut(&A) -> bool) -> Option<Batch<A>> {
        let (reads, writes) = (self.reads, self.writes);
        // In the order of lanes.
        for (group, queue) in &mut self.queues {
            let most = if group.reads { reads } else { writes };
            while queue.underway < most.calls {
                let Some(asks) = queue.take(most.seats, &mut is_wanted) else { break };
                if asks.is_empty() {
                    continue;
                }
                queue.underway += 1;
                self.calls += 1;
                self.underway.insert(self.calls, *group);
                return Some(Batch { call: self.calls, group: *group, asks });
            }
        }
        self.queues.retain(|_, queue| !queue.is_idle());
        None
    }

    /// A call has come to its end, or nobody waits for it any more.
    pub fn ended(&mut self, call: u64) {
        let group = self.underway.remove(&call);
        if let Some(queue) = group.and_then(|group| self.queues.get_mut(&group)) {
            queue.underway -= 1;
        }
    }

    /// A call of which nothing has happened, and one of these asks in it may be to blame for that. They are asked
    /// again in smaller calls; returns those that cannot be taken apart any more.
    pub fn take_apart(&mut self, call: u64, asks: Vec<A>) -> Vec<A> {
        let group = self.underway.get(&call).copied();
        self.ended(call);
        if asks.len() < 2 {
            return asks;
        }
        let Some(queue) = group.and_then(|group| self.queues.get_mut(&group)) else { return asks };
        let size = asks.len().div_ceil(PARTS);
        let mut asks = asks.into_iter();
        loop {
            let part: Vec<A> = asks.by_ref().take(size).collect();
            if part.is_empty() {
                return part;
            }
            queue.parts.push_back(part);
        }
    }
}

impl<A> Queue<A> {
    /// What goes into the next call: nothing, if all of it is no longer wanted; `None` if nothing waits.
    fn take(&mut self, most: usize, is_wanted: &mut impl FnMut(&A) -> bool) -> Option<Vec<A>> {
        if let Some(mut part) = self.parts.pop_front() {
            part.retain(is_wanted);
            return Some(part);
        }
        self.waiting.front()?;
        let (mut asks, mut length) = (Vec::new(), 0);
        while asks.len() < most
            && let Some((_, bytes)) = self.waiting.front()
            && (asks.is_empty() || length + bytes <= MOST_BYTES)
            && let Some((ask, bytes)) = self.waiting.pop_front()
        {
            if is_wanted(&ask) {
                length += bytes;
                asks.push(ask);
            }
        }
        Some(asks)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.parts.is_empty() && self.underway == 0
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
