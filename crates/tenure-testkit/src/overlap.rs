//! Detects two leaders that worked at once, from the recorded moments of their work.

use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::{Clock, Moment, Term, Token};
use tokio::sync::Notify;

use crate::Verdict;
use crate::failure::ensure;

/// Detects two leaders that worked at once. All candidates of an election report their work to one detector. Clones are
/// the same detector.
///
/// The moment of an act is recorded *before* the term is asked whether it is current. If the answer is yes, the term
/// was current at that moment, however busy the machine is. Only such acts count.
#[derive(Clone, Debug, Default)]
pub struct OverlapDetector(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    spans: Mutex<Vec<WorkSpan>>,
    changed: Notify,
}

/// The recorded work of one candidate in one term.
#[derive(Clone, Copy, Debug)]
struct WorkSpan {
    token: Token,
    began: Moment,
    last_act: Option<Moment>,
    left: Option<Moment>,
}

/// The work of one candidate in one term. Dropping it records the end of the work.
#[derive(Debug)]
pub struct Shift {
    detector: OverlapDetector,
    number: usize,
    term: Term,
}

impl OverlapDetector {
    /// Creates a detector without any recorded work.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the start of work in this term, and returns a handle to act with.
    pub fn begin(&self, term: &Term) -> Shift {
        let mut spans = self.spans();
        let number = spans.len();
        spans.push(WorkSpan { token: term.token(), began: Clock::system().now(), last_act: None, left: None });
        drop(spans);
        self.0.changed.notify_waiters();
        Shift { detector: self.clone(), number, term: term.clone() }
    }

    /// Acts repeatedly in this term until the term asks work to wrap up.
    pub async fn work(&self, term: Term) {
        let shift = self.begin(&term);
        while shift.act() {
            let pause = std::pin::pin!(tokio::time::sleep(std::time::Duration::from_millis(1)));
            let ending = std::pin::pin!(term.ending());
            if let futures_util::future::Either::Right(_) = futures_util::future::select(pause, ending).await {
                break;
            }
        }
    }

    /// Waits until a candidate has acted in a term with a higher token, and returns that token.
    pub async fn acted_above(&self, token: Token) -> Token {
        loop {
            let changed = self.0.changed.notified();
            let found = self.spans().iter().find(|span| span.token > token && span.last_act.is_some()).copied();
            match found {
                Some(span) => return span.token,
                None => changed.await,
            }
        }
    }

    /// Returns the number of terms in which work was recorded so far.
    pub fn work_spans(&self) -> usize {
        self.spans().len()
    }

    /// Verifies that no term acted after a later term had started to act, and that tokens rose.
    ///
    /// # Errors
    /// If two terms overlapped. The message names both.
    pub fn acts_do_not_overlap(&self) -> Verdict {
        let mut spans = self.spans().clone();
        spans.sort_by_key(|span| span.began);
        for pair in spans.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            // A candidate starts work once in a term, so the same token twice means two candidates.
            ensure!(
                one.token < next.token,
                "a term with token {} started after one with token {}",
                next.token,
                one.token
            );
            ensure!(
                one.last_act.is_none_or(|act| act < next.began),
                "two leaders worked at once: term {} still acted {:?} after term {} had started to work",
                one.token,
                one.last_act.unwrap_or(next.began).since(next.began),
                next.token
            );
        }
        Ok(())
    }

    /// Verifies that the work of each term had returned before the work of the next term started.
    ///
    /// # Errors
    /// If two terms overlapped. The message names both.
    pub fn shifts_do_not_overlap(&self) -> Verdict {
        self.acts_do_not_overlap()?;
        let mut spans = self.spans().clone();
        spans.sort_by_key(|span| span.began);
        for pair in spans.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            ensure!(
                one.left.is_some_and(|left| left <= next.began),
                "the work of term {} had not returned when that of term {} started",
                one.token,
                next.token
            );
        }
        Ok(())
    }

    fn spans(&self) -> MutexGuard<'_, Vec<WorkSpan>> {
        self.0.spans.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Shift {
    /// Records an act as the leader if the term is current. Returns whether it was current.
    pub fn act(&self) -> bool {
        let at = Clock::system().now();
        if !self.term.is_current() {
            return false;
        }
        let first = self.detector.spans()[self.number].last_act.replace(at).is_none();
        if first {
            self.detector.0.changed.notify_waiters();
        }
        true
    }

    /// Returns the token of the term that this work belongs to.
    pub fn token(&self) -> Token {
        self.term.token()
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        self.detector.spans()[self.number].left = Some(Clock::system().now());
        self.detector.0.changed.notify_waiters();
    }
}
