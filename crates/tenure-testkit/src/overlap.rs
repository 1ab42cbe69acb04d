//! Detects whether two leaders ever worked at once, by the work itself.

use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::{Clock, Moment, Term, Token};
use tokio::sync::Notify;

use crate::Verdict;
use crate::failure::ensure;

/// Detects whether two leaders ever worked at once. All candidates of an election report their work to one; clones are the
/// same detector.
///
/// Every act is stamped *before* the term is asked whether it is current. So an act counts
/// only if the term was current at that time, however busy the machine is.
#[derive(Clone, Debug, Default)]
pub struct OverlapDetector(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    shifts: Mutex<Vec<Record>>,
    changed: Notify,
}

/// One stretch of work in one term.
#[derive(Clone, Copy, Debug)]
struct Record {
    token: Token,
    began: Moment,
    last_act: Option<Moment>,
    left: Option<Moment>,
}

/// The work of one candidate in one term. Ends when dropped.
#[derive(Debug)]
pub struct Shift {
    detector: OverlapDetector,
    number: usize,
    term: Term,
}

impl OverlapDetector {
    /// Creates a detector that has seen no work.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins to work in this term.
    pub fn begin(&self, term: &Term) -> Shift {
        let mut shifts = self.shifts();
        let number = shifts.len();
        shifts.push(Record { token: term.token(), began: Clock::system().now(), last_act: None, left: None });
        drop(shifts);
        self.0.changed.notify_waiters();
        Shift { detector: self.clone(), number, term: term.clone() }
    }

    /// Works in this term until it is told to wrap up.
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

    /// Waits until somebody has acted in a term above this one, and returns which.
    pub async fn acted_above(&self, token: Token) -> Token {
        loop {
            let changed = self.0.changed.notified();
            let found = self.shifts().iter().find(|shift| shift.token > token && shift.last_act.is_some()).copied();
            match found {
                Some(shift) => return shift.token,
                None => changed.await,
            }
        }
    }

    /// Counts the stretches of work so far.
    pub fn work_spans(&self) -> usize {
        self.shifts().len()
    }

    /// Verifies that no term acted after a later one had begun to, and that tokens rose.
    ///
    /// # Errors
    /// Which two overlapped.
    pub fn acts_do_not_overlap(&self) -> Verdict {
        let mut shifts = self.shifts().clone();
        shifts.sort_by_key(|shift| shift.began);
        for pair in shifts.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            // A candidate begins once in a term, so one token twice means two candidates.
            ensure!(
                one.token < next.token,
                "a term with token {} began after one with token {}",
                next.token,
                one.token
            );
            ensure!(
                one.last_act.is_none_or(|act| act < next.began),
                "two leaders worked at once: term {} still acted {:?} after term {} had begun its work",
                one.token,
                one.last_act.unwrap_or(next.began).since(next.began),
                next.token
            );
        }
        Ok(())
    }

    /// Verifies that each stretch of work had ended before the next one began.
    ///
    /// # Errors
    /// Which two overlapped.
    pub fn shifts_do_not_overlap(&self) -> Verdict {
        self.acts_do_not_overlap()?;
        let mut shifts = self.shifts().clone();
        shifts.sort_by_key(|shift| shift.began);
        for pair in shifts.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            ensure!(
                one.left.is_some_and(|left| left <= next.began),
                "the work of term {} had not returned when that of term {} began",
                one.token,
                next.token
            );
        }
        Ok(())
    }

    fn shifts(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.shifts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Shift {
    /// Acts as the leader, if the term is current. Returns whether it was.
    pub fn act(&self) -> bool {
        let at = Clock::system().now();
        if !self.term.is_current() {
            return false;
        }
        let first = self.detector.shifts()[self.number].last_act.replace(at).is_none();
        if first {
            self.detector.0.changed.notify_waiters();
        }
        true
    }

    /// The number of its term.
    pub fn token(&self) -> Token {
        self.term.token()
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        self.detector.shifts()[self.number].left = Some(Clock::system().now());
        self.detector.0.changed.notify_waiters();
    }
}
