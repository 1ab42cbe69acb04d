//! Work that runs while this candidate leads.
//!
//! ```text
//!              BecameLeader        Ending          Ended
//!  term             |────────────────|───────────────|
//!  work             |▶ polled ──────▶|── wraps up ──▶| dropped, if it has not returned
//!  seat        won  |    renewed     |               |──▶ given up only after that
//! ```

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tenure_protocol::Dice;

use crate::term::WorkGuard;
use crate::{Election, Ended, Term};

impl Election {
    /// Waits to be elected, runs the work, and returns what it returned; or, if the term ends
    /// first, drops it and tells why.
    ///
    /// The work is told to wrap up by [`Term::ending`] and has `drain` for it (`stop_grace` if the
    /// end is voluntary). It is dropped at the end of the term, wherever it awaits; the clock is
    /// asked before each time that it is polled, so it never runs on after a pause. What it has
    /// spawned, and what never awaits, cannot be cut: such work must ask its `Term`.
    ///
    /// Dropping the future drops the work, and the engine counts it as returned; so does a panic, or the
    /// end of the runtime that the work ran on. **In each of these cases, and when the work returns,
    /// this candidate still leads**, and keeps the seat from others: call [`step_down`](Self::step_down)
    /// or [`stop`](Self::stop) if another shall have its turn, or run something that lasts.
    ///
    /// # Errors
    /// [`Ended::TermEnded`] if the term ended first; another [`Ended`] if the election ended here
    /// before there was a term.
    pub async fn run_while_leader<T>(&self, work: impl AsyncFnOnce(Term) -> T) -> Result<T, Ended> {
        let (term, guard) = self.enter().await?;
        supervise(&term, guard, work(term.clone())).await
    }

    /// Runs the work in every term of this candidate, for as long as the election runs here, and
    /// returns why that ended.
    ///
    /// Once the work has returned `Ok`, it runs again in the next term. If it fails it runs again
    /// in this one, after a pause that doubles each time, up to the lease, with full jitter.
    /// Otherwise as [`run_while_leader`](Self::run_while_leader). To spawn it on a runtime of several
    /// threads, write the work as `async move |term| …` over what it owns.
    pub async fn run_whenever_leader<E: std::fmt::Display>(
        &self,
        mut work: impl AsyncFnMut(Term) -> Result<(), E>,
    ) -> Ended {
        let mut dice = Dice::new(rand::random());
        loop {
            let (term, mut guard) = match self.enter().await {
                Ok(entered) => entered,
                Err(ended) => return ended,
            };
            let mut failures = 0;
            while let Ok(Err(error)) = supervise(&term, guard, work(term.clone())).await {
                let pause = dice.jitter(pause_after(failures, self.lease()));
                failures += 1;
                tracing::warn!(election = %self.name(), token = %term.token(), %error, ?pause, "the work failed; trying again");
                self.sleep(pause, &term).await;
                match term.enter() {
                    Some(again) => guard = again,
                    None => break,
                }
            }
            term.ended().await;
        }
    }

    /// Runs the work if this candidate leads now; `None` if it does not.
    /// Otherwise as [`run_while_leader`](Self::run_while_leader).
    pub async fn run_if_leader<T>(&self, work: impl AsyncFnOnce(Term) -> T) -> Option<Result<T, Ended>> {
        let term = self.term()?;
        let guard = term.enter()?;
        Some(supervise(&term, guard, work(term.clone())).await)
    }

    /// Runs the work on this thread if this candidate leads now; `None` if it does not.
    ///
    /// It cannot be cut: ask the `Term` every so often whether it is still current. While it runs
    /// the seat is not given up, and if it runs on past the end of the term, an
    /// [`Overran`](crate::Event::Overran) event tells, and this candidate does not stand again
    /// before it has returned.
    ///
    /// # Errors
    /// [`Ended::TermEnded`] if the term was over by the time the work returned: whatever it did
    /// last, it may have done beside its successor.
    pub fn run_if_leader_blocking<T>(&self, work: impl FnOnce(Term) -> T) -> Option<Result<T, Ended>> {
        let term = self.term()?;
        let _guard = term.enter()?;
        let result = work(term.clone());
        Some(if term.is_current() { Ok(result) } else { Err(term.loss()) })
    }

    /// Waits for a term that work may begin in.
    async fn enter(&self) -> Result<(Term, WorkGuard), Ended> {
        loop {
            let term = self.elected().await?;
            if let Some(guard) = term.enter() {
                return Ok((term, guard));
            }
            // It began to end in between.
            term.ended().await;
        }
    }
}

/// Runs work beside the end of its term. Loss wins ties.
async fn supervise<T>(term: &Term, guard: WorkGuard, work: impl Future<Output = T>) -> Result<T, Ended> {
    let mut work = Box::pin(work);
    let mut ended = pin!(term.ended());
    let outcome = std::future::poll_fn(|context| {
        // The clock is asked, too: after a pause this may run before the engine could tell.
        if ended.as_mut().poll(context).is_ready() || !term.is_current() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(|done| term.is_current().then_some(done))
    })
    .await;
    // First the work, then the word that it is done.
    drop(work);
    drop(guard);
    outcome.ok_or_else(|| term.loss())
}

fn pause_after(failures: u32, lease: Duration) -> Duration {
    (lease / 15).saturating_mul(1 << failures.min(16)).min(lease)
}
