//! Batches requests to the store into calls, and decides when each call leaves.
//!
//! ```text
//!  ask ─┐                     ┌▶ its answer
//!  ask ─┼─▶ queue ─▶ one call ─▶ its answer
//!  ask ─┘     ▲               └▶ its answer
//!             └ asks that arrive while the limit of calls is in flight wait for the next call
//! ```
//!
//! An *ask* is one read or write of one seat. A single ask leaves at once. While calls are in flight, asks of the
//! same group wait, and the next call takes as many of them as the store accepts: the slower the store, the fewer
//! calls it gets. Without batching, a thousand elections that start together would make a thousand calls, most of
//! which would time out before the store got to them, be retried, and time out again.
//!
//! # Correctness argument
//!
//! *The lease does not become longer by waiting.* A lease counts from the moment at which the machine returned the
//! action, and the call leaves after that moment. So an ask that waits in the queue loses part of the time that
//! its leader relies on, and never gains any. The time-out of an ask runs only from when its call leaves: otherwise
//! ten thousand elections that start together would time out in the queue, unsent, forever.
//!
//! *Each ask gets its own answer.* Each ask has its own condition and its own answer. A candidate has at most one
//! ask in flight, so no call holds two writes of one seat, and no ask receives the result of another.
//!
//! *Cancelled asks.* An ask that is cancelled before its call leaves is left out of the call. If it is cancelled
//! later, its answer is dropped and the call goes on for the other asks.
//!
//! *No ask is sent twice*, with one exception: if the store says that a call took no effect and that one of its
//! asks may be the cause, the call is split into smaller ones until that ask is alone in its call.
//!
//! *Asks that keep a term go first.* They share neither calls nor the limit of calls in flight with other asks, so
//! a call that hangs does not delay them. A leader's read is one of them, because after a lost answer the leader
//! reads the seat before it renews again. Reads that settle the unknown outcome of a write come next: the seat may
//! belong to this candidate, and other candidates wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The urgency of an ask. Asks of an earlier lane leave first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Renewals and reads by the holder of a seat, and releases.
    Keep,
    /// Reads after a write whose outcome is unknown.
    Settle,
    /// Looks and bids by candidates that hold no seat.
    Background,
}

/// The properties that asks must have in common to share a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The urgency of the asks, which decides which group leaves first.
    pub lane: Lane,
    /// Whether the asks read seats. Otherwise they write them.
    pub reads: bool,
    /// The part of the store that the asks go to, such as a node of a cluster.
    pub shard: u64,
    /// The lease of the elections that the asks belong to.
    pub lease: Duration,
    /// The time-out of each ask. A long one in the same call would hold up a short one.
    pub within: Duration,
}

/// How large the calls of a store are, and how many it takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The largest number of seats in one call, at least one.
    pub seats: usize,
    /// The largest number of calls of one [`Group`] that are in flight at once, at least one.
    pub calls: usize,
}

/// A call that the engine must send now, with the asks that share it.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<A> {
    /// The number of this call, for [`Admission::ended`] and [`Admission::take_apart`].
    pub call: u64,
    /// The properties that all asks of the call share.
    pub group: Group,
    /// The asks in the call, at least one and at most [`BatchLimits::seats`].
    pub asks: Vec<A>,
}

/// The asks that wait for a call, and the calls in flight.
#[derive(Debug)]
pub struct Admission<A> {
    reads: BatchLimits,
    writes: BatchLimits,
    queues: BTreeMap<Group, Queue<A>>,
    in_flight: BTreeMap<u64, Group>,
    calls: u64,
}

#[derive(Debug)]
struct Queue<A> {
    waiting: VecDeque<(A, usize)>,
    /// Parts of a call that was split. They leave before all other asks of the group.
    parts: VecDeque<Vec<A>>,
    in_flight: usize,
}

/// The longest call in bytes. A single longer ask still gets a call of its own.
const MAX_BYTES: usize = 512 * 1024;

/// The number of parts that a call is split into.
const PARTS: usize = 8;

impl<A> Admission<A> {
    /// Creates an empty queue for a store with these limits. A limit of zero counts as one.
    pub fn new(reads: BatchLimits, writes: BatchLimits) -> Self {
        let at_least_one = |limits: BatchLimits| BatchLimits { seats: limits.seats.max(1), calls: limits.calls.max(1) };
        Self {
            reads: at_least_one(reads),
            writes: at_least_one(writes),
            queues: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            calls: 0,
        }
    }

    /// Adds an ask of about `bytes` bytes to the queue of its group. Call [`Admission::next`] afterwards.
    pub fn ask(&mut self, group: Group, ask: A, bytes: usize) {
        let queue = self.queues.entry(group).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            parts: VecDeque::new(),
            in_flight: 0,
        });
        queue.waiting.push_back((ask, bytes));
    }

    /// Returns the next call to send, or `None` while nothing waits or the limits are reached. Asks for which
    /// `is_wanted` returns false are dropped.
    pub fn next(&mut self, mut is_wanted: impl FnMut(&A) -> bool) -> Option<Batch<A>> {
        let (reads, writes) = (self.reads, self.writes);
        // Groups are ordered by lane.
        for (group, queue) in &mut self.queues {
            let limits = if group.reads { reads } else { writes };
            while queue.in_flight < limits.calls {
                let Some(asks) = queue.take(limits.seats, &mut is_wanted) else { break };
                if asks.is_empty() {
                    continue;
                }
                queue.in_flight += 1;
                self.calls += 1;
                self.in_flight.insert(self.calls, *group);
                return Some(Batch { call: self.calls, group: *group, asks });
            }
        }
        self.queues.retain(|_, queue| !queue.is_idle());
        None
    }

    /// Frees the place of a call that was answered, or whose answer is no longer needed.
    pub fn ended(&mut self, call: u64) {
        let group = self.in_flight.remove(&call);
        if let Some(queue) = group.and_then(|group| self.queues.get_mut(&group)) {
            queue.in_flight -= 1;
        }
    }

    /// Splits a call that took no effect because one of these asks may be at fault. The asks are sent again in
    /// smaller calls. Returns the asks that cannot be split any further: a single ask, or all of them if the
    /// call is unknown.
    pub fn take_apart(&mut self, call: u64, asks: Vec<A>) -> Vec<A> {
        let group = self.in_flight.get(&call).copied();
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
    /// Removes the asks of the next call from the queue. The result is empty if none of them is wanted any
    /// more, and `None` if the queue is empty.
    fn take(&mut self, max_seats: usize, is_wanted: &mut impl FnMut(&A) -> bool) -> Option<Vec<A>> {
        if let Some(mut part) = self.parts.pop_front() {
            part.retain(is_wanted);
            return Some(part);
        }
        self.waiting.front()?;
        let (mut asks, mut length) = (Vec::new(), 0);
        while asks.len() < max_seats
            && let Some((_, bytes)) = self.waiting.front()
            && (asks.is_empty() || length + bytes <= MAX_BYTES)
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
        self.waiting.is_empty() && self.parts.is_empty() && self.in_flight == 0
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
