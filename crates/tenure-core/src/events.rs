//! What happens in an election, told to whoever listens.
//!
//! A listener reads at its own pace from a queue of its own, so that a slow one holds up nobody.
//! When its queue is full, what it missed is counted ([`Event::Lagged`]), with one exception:
//! whoever was told that a term began is told that it ended.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use tenure_protocol::{EndReason, Leader, Token};

use crate::term::WorkGuard;
use crate::{Ended, StoreError, Term};

/// Something that happened in an election, as seen from this candidate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// This candidate leads.
    BecameLeader {
        /// Its term.
        term: Term,
    },
    /// The term is about to end, and work shall wrap up. This candidate does not lead any more.
    Ending {
        /// The term's number.
        token: Token,
        /// Why it ends.
        why: EndReason,
    },
    /// The term is over.
    LostLeadership {
        /// The term's number.
        token: Token,
        /// Why it ended.
        why: EndReason,
    },
    /// Another leads, or nobody does, as far as can be seen from here.
    LeaderChanged {
        /// Who leads now.
        leader: Option<Leader>,
    },
    /// The store fails, or fails in another way than before. Told once, not at every attempt.
    Error {
        /// What it said.
        error: Arc<StoreError>,
    },
    /// The store works again.
    Recovered,
    /// Work is still running though its term is over. This candidate does not stand, and does not
    /// give up the seat, until the work has returned.
    Overran {
        /// The number of the term that is over.
        token: Token,
    },
    /// Whether this candidate is well enough to lead has changed. While it is not, it does not stand.
    HealthChanged {
        /// Whether it is.
        healthy: bool,
    },
    /// This listener was too slow, and missed some events.
    Lagged {
        /// How many.
        missed: u64,
    },
    /// The election has ended here. Nothing comes after this.
    Stopped {
        /// Why.
        why: Ended,
    },
}

/// The events of an election, from the moment they were asked for: first what is the case already,
/// if this candidate leads or knows who does or the store fails, then what happens. A stream that ends after
/// [`Event::Stopped`].
///
/// Dropping it unsubscribes.
#[derive(Debug)]
pub struct Events(pub(crate) Arc<Queue>);

impl Events {
    /// The next event; `None` after the last. Nothing is lost if the future is dropped.
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

/// An event, and the work that is not done before it was heard.
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
    /// The listener was told of the beginning of a term, and not yet of its end.
    told_of_term: bool,
    finished: bool,
    waker: Option<Waker>,
}

/// So many events wait for a slow listener before some are dropped.
const CAPACITY: usize = 256;

impl Queue {
    /// Adds an event, and returns whom to wake for it. Never blocks.
    #[must_use]
    pub(crate) fn push(&self, entry: Entry) -> Option<Waker> {
        let mut inner = self.lock();
        // Dropped after the lock is released: a guard tells the engine.
        let dropped = if inner.entries.len() >= CAPACITY { inner.collapse() } else { Vec::new() };
        inner.entries.push_back(entry);
        let waker = inner.waker.take();
        drop(inner);
        drop(dropped);
        waker
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
        match &entry.event {
            Event::BecameLeader { .. } => self.told_of_term = true,
            Event::LostLeadership { .. } => self.told_of_term = false,
            Event::Stopped { .. } => self.finished = true,
            _ => {}
        }
        Some(entry)
    }

    /// Keeps the end of the term that the listener knows of and the beginning of the one that runs
    /// now, and counts the rest. Returns what was dropped.
    fn collapse(&mut self) -> Vec<Entry> {
        let is_begin = |entry: &Entry| matches!(entry.event, Event::BecameLeader { .. });
        let is_end = |entry: &Entry| matches!(entry.event, Event::LostLeadership { .. });
        let last_begin = self.entries.iter().rposition(is_begin);
        let last_end = self.entries.iter().rposition(is_end);
        let current = last_begin.filter(|begin| last_end.is_none_or(|end| end < *begin));
        let first_end = self.entries.iter().position(is_end);

        let mut missed = 0;
        let mut dropped = Vec::new();
        let mut ends = VecDeque::new();
        let mut begins = VecDeque::new();
        for (at, entry) in std::mem::take(&mut self.entries).into_iter().enumerate() {
            let is_ending = matches!(entry.event, Event::Ending { .. });
            let of_known_term = self.told_of_term
                && first_end.map_or(current.is_none(), |end| at <= end)
                && (is_ending || is_end(&entry));
            let of_current_term = current.is_some_and(|begin| at == begin || (at > begin && is_ending));
            if let Event::Lagged { missed: before } = entry.event {
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
        self.entries.push_back(Entry { event: Event::Lagged { missed }, guard: None });
        self.entries.append(&mut begins);
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &Queue, event: Event) {
        assert!(queue.push(Entry { event, guard: None }).is_none(), "nobody waits");
    }

    fn drain(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop())
            .map(|entry| match entry.event {
                Event::BecameLeader { term } => format!("+{}", term.token()),
                Event::Ending { token, .. } => format!("~{token}"),
                Event::LostLeadership { token, .. } => format!("-{token}"),
                Event::Lagged { missed } => format!("lagged {missed}"),
                _ => ".".to_owned(),
            })
            .collect()
    }

    fn began(number: u64) -> Event {
        Event::BecameLeader { term: Term::for_tests(Token::new(number)) }
    }

    fn ending(number: u64) -> Event {
        Event::Ending { token: Token::new(number), why: EndReason::NotRenewed }
    }

    fn ended(number: u64) -> Event {
        Event::LostLeadership { token: Token::new(number), why: EndReason::NotRenewed }
    }

    #[test]
    fn a_slow_listener_is_told_the_end_of_every_term_it_was_told_the_beginning_of() {
        let queue = Queue::default();
        push(&queue, began(1));
        assert_eq!(drain(&queue), ["+1"]);
        for event in [ending(1), ended(1), began(2), ending(2), ended(2), began(3)] {
            push(&queue, event);
        }
        for _ in 0..CAPACITY {
            push(&queue, Event::Recovered);
        }
        let told = drain(&queue);
        assert_eq!(told[..4], ["~1", "-1", "lagged 253", "+3"]);
    }

    #[test]
    fn a_term_that_began_and_ended_unheard_is_only_counted() {
        let queue = Queue::default();
        for number in 1..=CAPACITY as u64 {
            push(&queue, began(number));
            push(&queue, ended(number));
        }
        let told = drain(&queue);
        assert!(told[0].starts_with("lagged"), "{told:?}");
        let (mut open, mut missed) = (None, 0);
        for event in &told {
            if let Some(token) = event.strip_prefix('+') {
                open = Some(token);
            } else if let Some(token) = event.strip_prefix('-') {
                assert_eq!(open.take(), Some(token));
            } else if let Some(count) = event.strip_prefix("lagged ") {
                missed += count.parse::<usize>().unwrap();
            }
        }
        assert_eq!(open, None);
        assert_eq!(missed + told.len() - 1, 2 * CAPACITY);
    }

    #[test]
    fn a_term_that_still_runs_is_not_forgotten() {
        let queue = Queue::default();
        push(&queue, began(1));
        drain(&queue);
        for _ in 0..3 * CAPACITY {
            push(&queue, Event::Recovered);
        }
        push(&queue, ended(1));
        let told = drain(&queue);
        assert_eq!(told.iter().filter(|event| *event == "-1").count(), 1);
    }
}
