//! Work that runs while this candidate leads.
//!
//! ```text
//!              BecameLeader        Ending          Ended
//!  term             |────────────────|───────────────|
//!  work             |▶ polled ──────▶|── wraps up ──▶| dropped, if it has not returned
//!  seat        won  |    renewed     |               |──▶ released only after that
//! ```

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::Dice;

use crate::handlers::panic_message;
use crate::term::WorkGuard;
use crate::{Election, Ended, Term};

/// # Running work
///
/// The table in the documentation of [`Election`] compares these methods.
impl Election {
    /// Waits until this candidate leads, runs the work once, and returns its result; drops the work if the term ends
    /// first.
    ///
    /// For one-off work: a migration, a single report. When the work has returned, this candidate **still leads**. No
    /// other candidate leads until this one calls [`step_down`](Self::step_down), [`release`](Self::release) or
    /// [`stop`](Self::stop).
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// let token = election.run_while_leader(async |term| term.token()).await?;
    /// // Fallible work: one `?` for the term, one for the work.
    /// let lines = election.run_while_leader(async |_| "17".parse::<u32>()).await??;
    /// # assert_eq!(lines, 17);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Ended::TermEnded`] if the term ended before the work returned. Another [`Ended`] if the election ended in this
    /// process before this candidate led; then the work did not start.
    pub async fn run_while_leader<T>(&self, work: impl AsyncFnOnce(Term) -> T) -> Result<T, Ended> {
        let (term, guard) = self.enter().await?;
        supervise(&term, guard, work(term.clone())).await
    }

    /// Runs the work once in every term of this candidate, until the election ends in this process, and returns why it
    /// ended.
    ///
    /// For work that lasts as long as its term: a consumer, a controller, an outbox publisher. **When the work returns,
    /// this candidate keeps the seat and does nothing** until its term ends: a job that finishes runs once, and then no
    /// candidate runs it. Use [`run_then_release`](Self::run_then_release) for such jobs.
    ///
    /// Work that returns an error or panics is logged and runs again in the same term, after a pause with full jitter
    /// that doubles each time, up to the lease. The closure is cloned for each run: it can borrow values that outlive this
    /// call, or own values that are `Clone`.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # use std::{sync::Arc, time::Duration};
    /// # async fn publish_next(outbox: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = Elections::new(MemoryStore::new()).election("outbox").start()?;
    /// # let publisher = election.clone();
    /// # let outbox = Arc::new(String::new());
    /// tokio::spawn(async move {
    ///     publisher
    ///         .run_once_per_term(async |term| {
    ///             while !term.is_ending() {
    ///                 publish_next(&outbox).await?;
    /// #               tokio::task::yield_now().await;
    ///             }
    ///             Ok::<_, std::io::Error>(())
    ///         })
    ///         .await
    /// });
    /// # election.elected().await?;
    /// # election.stop();
    /// # election.stopped().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_once_per_term<R: WorkOutcome>(&self, work: impl AsyncFnOnce(Term) -> R + Clone) -> Ended {
        let mut dice = Dice::new(rand::random());
        loop {
            let (term, mut guard) = match self.enter().await {
                Ok(entered) => entered,
                Err(ended) => return ended,
            };
            let mut failures = 0;
            while let Some(error) = failure(&term, guard, work.clone()(term.clone())).await {
                let pause = dice.jitter(pause_after(failures, self.lease()));
                failures += 1;
                tracing::warn!(election = %self.name(), token = term.token().get(), error, ?pause, "the work failed; running it again");
                self.sleep(pause, &term).await;
                match term.enter() {
                    Some(again) => guard = again,
                    None => break,
                }
            }
            term.ended().await;
        }
    }

    /// Runs the work in every term of this candidate and releases the seat each time that the work has returned, until
    /// the election ends in this process; returns why it ended.
    ///
    /// For jobs that finish and run again, on the candidate that leads next. After the release this candidate lets
    /// others go first: it stands again when another candidate has led, or two fifths of a lease later. So a single
    /// candidate runs the work again after that pause. Work that returns an error or panics is logged, and releases the
    /// seat as well. The closure is cloned for each run, as by [`run_once_per_term`](Self::run_once_per_term).
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = Elections::new(MemoryStore::new()).election("reports").start()?;
    /// let handle = election.clone();
    /// election
    ///     .run_then_release(async |term| {
    ///         println!("writing the report, fenced by {}", term.token());
    ///         handle.stop(); // leaves the election; without this line, the job runs again
    ///     })
    ///     .await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_then_release<R: WorkOutcome>(&self, work: impl AsyncFnOnce(Term) -> R + Clone) -> Ended {
        loop {
            let (term, guard) = match self.enter().await {
                Ok(entered) => entered,
                Err(ended) => return ended,
            };
            if let Some(error) = failure(&term, guard, work.clone()(term.clone())).await {
                tracing::warn!(election = %self.name(), token = term.token().get(), error, "the work failed; giving up the seat");
            }
            term.finish();
            term.ended().await;
        }
    }

    /// Runs the work if this candidate leads now, and returns its result.
    ///
    /// For work that another event triggers, such as a timer or a request, and that followers skip.
    ///
    /// ```
    /// # use tenure_core::{Elections, Ended, memory::MemoryStore};
    /// # async fn clean_up() -> u32 { 3 }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// # election.elected().await?;
    /// match election.run_if_leader(async |_term| clean_up().await).await {
    ///     Ok(removed) => println!("removed {removed} files"),
    ///     Err(Ended::NotLeading) => {} // the leader does it
    ///     Err(ended) => println!("{ended}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Ended::NotLeading`] if this candidate does not lead; then the work did not start. [`Ended::TermEnded`] if the
    /// term ended before the work returned; then the work was dropped.
    pub async fn run_if_leader<T>(&self, work: impl AsyncFnOnce(Term) -> T) -> Result<T, Ended> {
        let (term, guard) = self.enter_now()?;
        supervise(&term, guard, work(term.clone())).await
    }

    /// Runs the work on this thread if this candidate leads now, and returns its result.
    ///
    /// The engine cannot interrupt the work: the work must check [`Term::is_ending`] at short intervals. The seat is
    /// not released while the work runs. If it runs past the end of its term, an
    /// [`Overran`](crate::EventKind::Overran) event is published, and this candidate does not stand again before the
    /// work has returned.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// # election.elected_blocking()?;
    /// # let files = ["a", "b"];
    /// let done = election.run_if_leader_blocking(|term| {
    ///     files.iter().take_while(|_| !term.is_ending()).count()
    /// })?;
    /// # assert_eq!(done, 2);
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Ended::NotLeading`] if this candidate does not lead; then the work did not start. [`Ended::TermEnded`] if the
    /// term was over when the work returned; then its last steps can have run beside those of the next leader.
    pub fn run_if_leader_blocking<T>(&self, work: impl FnOnce(Term) -> T) -> Result<T, Ended> {
        let (term, _guard) = self.enter_now()?;
        let result = work(term.clone());
        if term.is_current() { Ok(result) } else { Err(term.loss()) }
    }

    /// Waits for a term in which work can start, and holds it.
    async fn enter(&self) -> Result<(Term, WorkGuard), Ended> {
        loop {
            let term = self.elected().await?;
            if let Some(guard) = term.enter() {
                return Ok((term, guard));
            }
            // The term began to end between the two calls.
            term.ended().await;
        }
    }

    fn enter_now(&self) -> Result<(Term, WorkGuard), Ended> {
        let entered = self.term().and_then(|term| term.enter().map(|guard| (term, guard)));
        entered.ok_or(Ended::NotLeading)
    }
}

impl Term {
    /// Runs work in this term, and returns its result; or drops the work if the term ends first.
    ///
    /// For a term that [`Election::try_acquire`] or [`Election::elected`] has returned. Unlike with
    /// [`Election::run_if_leader`], the work never runs in a later term.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = Elections::new(MemoryStore::new()).election("report").manual().start()?;
    /// if let Some(term) = election.try_acquire().await? {
    ///     term.run(async |term| println!("writing the report, fenced by {}", term.token())).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Ended::TermEnded`] if the term was ending already, so that the work was not begun, or ended before the work
    /// had returned.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(Term) -> T) -> Result<T, Ended> {
        let Some(guard) = self.enter() else { return Err(self.loss()) };
        supervise(self, guard, work(self.clone())).await
    }
}

/// The types that work can return: `()`, `Result<(), E>` with an error that is logged, and `!` for work that never
/// returns.
///
/// The trait is sealed: no other type can implement it.
#[diagnostic::on_unimplemented(
    message = "work cannot return `{Self}`",
    label = "this work returns `{Self}`",
    note = "return `()`, or `Result<(), E>` with an error that implements `Display`",
    note = "`run_while_leader` and `run_if_leader` return any value of their work to the caller"
)]
pub trait WorkOutcome: sealed::Sealed {
    /// Returns the text of the error, if the work failed.
    #[doc(hidden)]
    fn failure(self) -> Option<String>;
}

impl WorkOutcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> WorkOutcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

impl WorkOutcome for sealed::Never {
    fn failure(self) -> Option<String> {
        match self {}
    }
}

mod sealed {
    /// The type `!` of work that never returns. Stable Rust has no name for it yet.
    pub(super) type Never = <fn() -> ! as ReturnType>::Type;

    pub trait ReturnType {
        type Type;
    }

    impl<T> ReturnType for fn() -> T {
        type Type = T;
    }

    pub trait Sealed {}

    impl Sealed for () {}
    impl<E> Sealed for Result<(), E> {}
    impl Sealed for Never {}
}

/// Runs work in a term, and returns the text of its error or its panic. `None` if it succeeded, or if it was dropped at
/// the end of the term.
async fn failure<R: WorkOutcome>(term: &Term, guard: WorkGuard, work: impl Future<Output = R>) -> Option<String> {
    match supervise(term, guard, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome.failure(),
        Ok(Err(panic)) => Some(format!("panicked: {}", panic_message(&*panic))),
        Err(_) => None,
    }
}

/// Polls the work until it returns or its term ends. If both happen at once, the end of the term wins.
pub(crate) async fn supervise<T>(term: &Term, guard: WorkGuard, work: impl Future<Output = T>) -> Result<T, Ended> {
    let mut work = Box::pin(work);
    let mut ended = pin!(term.ended());
    let outcome = std::future::poll_fn(|context| {
        // The clock is read as well: after a pause of the process, this can run before the engine's thread does.
        if ended.as_mut().poll(context).is_ready() || !term.is_current() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(|done| term.is_current().then_some(done))
    })
    .await;
    // The work is dropped before the guard, because the drop of the guard reports that the work has ended.
    drop(work);
    drop(guard);
    outcome.ok_or_else(|| term.loss())
}

fn pause_after(failures: u32, lease: Duration) -> Duration {
    (lease / 15).saturating_mul(1 << failures.min(16)).min(lease)
}

#[cfg(test)]
mod tests {
    use crate::memory::Memory;
    use crate::{Elections, LifeKind, ManualClock};

    #[test]
    fn a_term_is_not_given_up_for_the_work_of_the_term_before() {
        let clock = ManualClock::new();
        let elections = Elections::with_clock(Memory::of_kind(LifeKind::Clock, clock.clone()).store(), clock.clone());
        let election = elections.election("jobs").start().unwrap();
        clock.settle();
        let first = election.term().unwrap();
        election.release();
        clock.settle();
        let second = election.term().unwrap();
        assert!(first.token() < second.token());
        first.finish();
        clock.settle();
        assert!(election.is_leader(), "the second term was given up");
        second.finish();
        clock.settle();
        assert!(!election.is_leader());
    }
}
