//! The events of an election, and the queues of their listeners.
//!
//! Each listener reads from a separate queue, so a slow listener delays no other and not the engine. When its queue is
//! full, events are dropped and counted ([`EventKind::Lagged`]), with one exception: a listener that received the
//! beginning of a term always receives its end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use futures_core::Stream;
use tenure_protocol::{Candidate, Crash, EndReason, Token};

use crate::term::WorkGuard;
use crate::{Ended, Error, Leader, SeatName, Term};

/// A change in an election, as seen from one of its candidates or from an observer.
///
/// The same event reaches [`events()`](crate::Election::events), [`on_event`](crate::Builder::on_event) and the handler
/// made for its kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The name of the election in which it happened.
    pub election: SeatName,
    /// The candidate whose handle or handler receives the event.
    pub candidate: Candidate,
    /// When the engine published the event, by this machine's wall clock.
    pub at: SystemTime,
    /// The kind of change, such as a new leader, with its details.
    pub kind: EventKind,
}

/// The kinds of events of an election. See [`Event`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// This candidate has won the seat, and its term begins.
    BecameLeader {
        /// The term that has begun. It can be over by the time that this event is read.
        term: Term,
    },
    /// The term begins to end, and work should wrap up. From now on `is_leader()` is false.
    Ending {
        /// The token of the term that begins to end.
        token: Token,
        /// Why the term ends, such as a stop or a renewal that failed.
        why: EndReason,
    },
    /// The term is over: its work has returned, or its time is up. The seat is released after this.
    LostLeadership {
        /// The token of the term that has just ended.
        token: Token,
        /// Why the term ended, such as a stop or a renewal that failed.
        why: EndReason,
    },
    /// The leader has changed as seen by this candidate: another candidate leads, or none does.
    LeaderChanged {
        /// The new leader; `None` if the election has no leader.
        leader: Option<Leader>,
        /// The leader before the change; `None` if there was none, or it is not known.
        previous: Option<Leader>,
    },
    /// The process of a leader died, and its last will has freed the seat. A [`LeaderChanged`](Self::LeaderChanged)
    /// follows, unless this candidate had not seen that leader.
    LeaderCrashed {
        /// The candidate that led, the token of its term, and who executed the will.
        crash: Arc<Crash>,
    },
    /// A bid of this candidate came too late: another candidate took the seat first. This is normal when several
    /// candidates bid for a free seat.
    LostBid,
    /// The store fails, or fails in a different way, or a handler panicked or returned an error. Reported once per
    /// change, not for every failed call.
    Error {
        /// Either [`Error::Store`] or [`Error::Handler`].
        error: Arc<Error>,
    },
    /// The store answers calls again, after it had failed.
    Recovered,
    /// Work is still running although its term is over. This candidate does not stand, and does not release the seat,
    /// until the work has returned. In the meantime the seat expires, unless a session of this process holds it.
    Overran {
        /// The token of the term whose work is still running.
        token: Token,
    },
    /// This candidate has become healthy enough to lead, or has ceased to be. While it is not, it does not stand.
    HealthChanged {
        /// Whether this candidate is now healthy enough to lead.
        healthy: bool,
    },
    /// This listener was too slow, and events were dropped from its queue.
    Lagged {
        /// The number of events that were dropped from the queue.
        missed: u64,
    },
    /// The election has ended in this process. This is the last event.
    Stopped {
        /// Why the election ended: it was stopped, or it gave up.
        why: Ended,
    },
}

/// A subscription to the events of an election. Dropping it unsubscribes.
///
/// [`Election::events`](crate::Election::events) returns one. The first events describe the current state: this
/// candidate leads, it sees a leader, the store fails. Then it delivers all changes in order. It is also a
/// [`Stream`](futures_core::Stream), which ends after [`EventKind::Stopped`].
///
/// At most 256 events wait for a slow reader. When there are more, all of them are replaced by one
/// [`Lagged`](EventKind::Lagged) event with their number; only the end of a term whose beginning was read, and the
/// beginning of the current term, are kept.
///
/// ```
/// # use tenure_core::{Elections, EventKind, memory::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
/// # election.elected().await?;
/// let mut events = election.events();
/// # election.stop();
/// while let Some(event) = events.next().await {
///     match event.kind {
///         EventKind::BecameLeader { term } => println!("leading with token {}", term.token()),
///         EventKind::Ending { why, .. } => println!("wrapping up: {}", why.as_str()),
///         EventKind::LeaderChanged { leader, .. } => println!("the leader is now {leader:?}"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events(pub(crate) Arc<Queue>);

impl Events {
    /// Waits for the next event; `None` after the last one. Cancel safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.0.poll_pop(context)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_pop(context)
    }
}

/// An event, and a guard that holds the term until the event was handled.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    pub(crate) guard: Option<WorkGuard>,
}

/// The queue of one listener.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    /// The listener has received the beginning of a term, and not yet its end.
    knows_term: bool,
    finished: bool,
    waker: Option<Waker>,
}

/// The number of events that wait for a slow listener before some are dropped.
const CAPACITY: usize = 256;

impl Queue {
    /// Adds an event, and returns the waker of the listener. Never blocks.
    #[must_use]
    pub(crate) fn push(&self, entry: Entry) -> Option<Waker> {
        let mut inner = self.lock();
        // Dropped after the lock is released: the drop of a guard sends a command to the engine.
        let dropped = if inner.entries.len() >= CAPACITY { inner.collapse() } else { Vec::new() };
        inner.entries.push_back(entry);
        let waker = inner.waker.take();
        drop(inner);
        drop(dropped);
        waker
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    /// Takes the oldest event.
    pub(crate) fn pop(&self) -> Option<Entry> {
        self.lock().pop()
    }

    fn poll_pop(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut inner = self.lock();
        if let Some(entry) = inner.pop() {
            return Poll::Ready(Some(entry.event));
        }
        if inner.finished {
            return Poll::Ready(None);
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Inner {
    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        match &entry.event.kind {
            EventKind::BecameLeader { .. } => self.knows_term = true,
            EventKind::LostLeadership { .. } => self.knows_term = false,
            EventKind::Stopped { .. } => self.finished = true,
            _ => {}
        }
        Some(entry)
    }

    /// Keeps the end of the term that the listener knows and the beginning of the current term, and counts the other
    /// events. Returns the dropped ones.
    fn collapse(&mut self) -> Vec<Entry> {
        let Some(last) = self.entries.back().map(|entry| entry.event.clone()) else { return Vec::new() };
        let is_begin = |entry: &Entry| matches!(entry.event.kind, EventKind::BecameLeader { .. });
        let is_end = |entry: &Entry| matches!(entry.event.kind, EventKind::LostLeadership { .. });
        let last_begin = self.entries.iter().rposition(is_begin);
        let last_end = self.entries.iter().rposition(is_end);
        let current = last_begin.filter(|begin| last_end.is_none_or(|end| end < *begin));
        let first_end = self.entries.iter().position(is_end);

        let mut missed = 0;
        let mut dropped = Vec::new();
        let mut ends = VecDeque::new();
        let mut begins = VecDeque::new();
        for (at, entry) in std::mem::take(&mut self.entries).into_iter().enumerate() {
            let is_ending = matches!(entry.event.kind, EventKind::Ending { .. });
            let of_known_term = self.knows_term
                && first_end.map_or(current.is_none(), |end| at <= end)
                && (is_ending || is_end(&entry));
            let of_current_term = current.is_some_and(|begin| at == begin || (at > begin && is_ending));
            if let EventKind::Lagged { missed: before } = entry.event.kind {
                missed += before;
            } else if of_known_term {
                ends.push_back(entry);
            } else if of_current_term {
                begins.push_back(entry);
            } else {
                missed += 1;
                dropped.push(entry);
            }
        }
        self.entries = ends;
        let event = Event { kind: EventKind::Lagged { missed }, ..last };
        self.entries.push_back(Entry { event, guard: None });
        self.entries.append(&mut begins);
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &Queue, kind: EventKind) {
        let candidate = Candidate { id: "me".into(), incarnation: tenure_protocol::Incarnation::from_bits(1) };
        let event = Event { election: SeatName::new("jobs").unwrap(), candidate, at: SystemTime::UNIX_EPOCH, kind };
        assert!(queue.push(Entry { event, guard: None }).is_none(), "there is no waker");
    }

    fn drain(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop())
            .map(|entry| match entry.event.kind {
                EventKind::BecameLeader { term } => format!("+{}", term.token()),
                EventKind::Ending { token, .. } => format!("~{token}"),
                EventKind::LostLeadership { token, .. } => format!("-{token}"),
                EventKind::Lagged { missed } => format!("lagged {missed}"),
                _ => ".".to_owned(),
            })
            .collect()
    }

    fn began(number: u64) -> EventKind {
        EventKind::BecameLeader { term: Term::for_tests(Token::new(number)) }
    }

    fn ending(number: u64) -> EventKind {
        EventKind::Ending { token: Token::new(number), why: EndReason::NotRenewed }
    }

    fn ended(number: u64) -> EventKind {
        EventKind::LostLeadership { token: Token::new(number), why: EndReason::NotRenewed }
    }

    #[test]
    fn a_slow_listener_receives_the_end_of_every_term_whose_beginning_it_received() {
        let queue = Queue::default();
        push(&queue, began(1));
        assert_eq!(drain(&queue), ["+1"]);
        for event in [ending(1), ended(1), began(2), ending(2), ended(2), began(3)] {
            push(&queue, event);
        }
        for _ in 0..CAPACITY {
            push(&queue, EventKind::Recovered);
        }
        let events = drain(&queue);
        assert_eq!(events[..4], ["~1", "-1", "lagged 253", "+3"]);
    }

    #[test]
    fn a_term_that_began_and_ended_unread_is_only_counted() {
        let queue = Queue::default();
        for number in 1..=CAPACITY as u64 {
            push(&queue, began(number));
            push(&queue, ended(number));
        }
        let events = drain(&queue);
        assert!(events[0].starts_with("lagged"), "{events:?}");
        let (mut open, mut missed) = (None, 0);
        for event in &events {
            if let Some(token) = event.strip_prefix('+') {
                open = Some(token);
            } else if let Some(token) = event.strip_prefix('-') {
                assert_eq!(open.take(), Some(token));
            } else if let Some(count) = event.strip_prefix("lagged ") {
                missed += count.parse::<usize>().unwrap();
            }
        }
        assert_eq!(open, None);
        assert_eq!(missed + events.len() - 1, 2 * CAPACITY);
    }

    #[test]
    fn a_term_that_still_runs_is_not_forgotten() {
        let queue = Queue::default();
        push(&queue, began(1));
        drain(&queue);
        for _ in 0..3 * CAPACITY {
            push(&queue, EventKind::Recovered);
        }
        push(&queue, ended(1));
        let events = drain(&queue);
        assert_eq!(events.iter().filter(|event| *event == "-1").count(), 1);
    }
}
