//! A term: the right to act as the leader, for a limited time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tenure_protocol::{Candidate, EndReason, Moment, Token};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Ended;
use crate::driver::{ElectionId, EngineHandle};
use crate::election::Shared;

/// One period of leadership. Only the engine creates terms.
///
/// A `Term` is a cheap handle: cloning it costs little, and dropping it releases nothing, with one exception: in a
/// [`manual()`](crate::Builder::manual) election, dropping the last clone of the term that
/// [`try_acquire()`](crate::Election::try_acquire) returned releases the seat. The engine waits for the work of the
/// `run_…` methods before it releases the seat, but not for the owner of a bare `Term`: use
/// [`begin_work`](Self::begin_work) for that.
///
/// ```
/// # use tenure_core::{Elections, memory::MemoryStore};
/// # async fn publish(fence: u64) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let election = Elections::new(MemoryStore::new()).election("outbox").start()?;
/// # let handle = election.clone();
/// election
///     .run_while_leader(async |term| {
///         while !term.is_ending() {
///             publish(term.token().get()).await; // the receiver rejects lower tokens
/// #           handle.stop();
/// #           tokio::task::yield_now().await;
///         }
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Term {
    state: Arc<TermState>,
    /// Releases the seat when the last clone is dropped.
    _release: Option<Arc<ReleaseOnDrop>>,
}

impl Term {
    /// Returns the token of this term: a number that rises with every term of the election and never restarts.
    ///
    /// Pass it to the systems that the work writes to, and have them reject tokens lower than the highest one that they
    /// have seen. This is the only protection against a write that was delayed beyond the end of its term.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("outbox").start()?;
    /// let term = election.elected_blocking()?;
    /// let statement = format!("UPDATE outbox SET fence = {0} WHERE fence <= {0}", term.token());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn token(&self) -> Token {
        self.state.token
    }

    /// Returns the name of the election that this is a term of.
    pub fn election(&self) -> &str {
        self.state.shared.name.as_str()
    }

    /// Returns the candidate that leads in this term.
    pub fn candidate(&self) -> &Candidate {
        &self.state.shared.candidate
    }

    /// Returns whether this term is still valid. Work that cannot await checks it before each step.
    ///
    /// Reads the clock at every call, so it returns false after the hold even if the process was paused. It stays true
    /// while work wraps up, when [`Election::is_leader`](crate::Election::is_leader) is already false.
    pub fn is_current(&self) -> bool {
        self.state.is_current()
    }

    /// Returns how long this term is valid if it is not renewed. Renewals usually extend it. Zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.state.until().since(self.state.shared.clock.now())
    }

    /// Returns the moment at which this term ends if it is not renewed.
    ///
    /// It is a time of the engine's clock. On Linux that is `CLOCK_BOOTTIME`, which all processes of the machine share.
    pub fn deadline(&self) -> Moment {
        self.state.until()
    }

    /// Resolves with the new [deadline](Self::deadline) as soon as it differs from `known`: after each renewal, when
    /// work should wrap up, and when the term is over.
    ///
    /// For work in another process, which needs to know its deadline. Cancel safe.
    pub async fn deadline_moved(&self, known: Moment) -> Moment {
        loop {
            let moved = self.state.moved.notified();
            let until = self.state.until();
            if until != known {
                return until;
            }
            moved.await;
        }
    }

    /// Registers work of this term, which ends when the returned guard is dropped. `None` if the term is ending.
    ///
    /// Until then the seat is not released, even if the term is over, and this candidate does not stand again. For work
    /// that the engine cannot interrupt; prefer the `run_…` methods for everything else.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("outbox").start()?;
    /// let term = election.elected_blocking()?;
    /// if let Some(work) = term.begin_work() {
    ///     std::thread::spawn(move || {
    ///         // … check term.is_ending() at short intervals …
    ///         drop(work); // the work is done
    ///     });
    /// }
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn begin_work(&self) -> Option<Work> {
        self.enter().map(Work)
    }

    /// Releases the seat because the work of this term is done, if the term is not over yet.
    ///
    /// Once all work of the term has wrapped up, this candidate lets others go first for two fifths of a lease. If the
    /// election has an [occasion](crate::Builder::occasion), the occasion counts as done.
    /// [`Election::run_then_release`](crate::Election::run_then_release) calls this when its work has returned. The call
    /// only sends a request and does not wait.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let election = Elections::new(MemoryStore::new()).election("reports").start()?;
    /// let term = election.elected().await?;
    /// println!("writing the report, fenced by {}", term.token());
    /// term.finish();
    /// term.ended().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish(&self) {
        self.state.handle.finish(self.state.shared.id, self.state.token);
    }

    /// Returns whether work should wrap up, or the term is over. For work that cannot await [`ending`](Self::ending).
    ///
    /// Takes a lock for a moment and reads the clock; cheap enough for every iteration of a loop.
    pub fn is_ending(&self) -> bool {
        self.state.is_ending() || !self.is_current()
    }

    /// Returns why this term is ending or has ended; `None` until then.
    ///
    /// After [`EndReason::NotRenewed`], time alone ends the term: work that can stop at any moment may go on until
    /// [`deadline`](Self::deadline). After all other reasons another candidate may be waiting, so work should stop now.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.state.why.get().copied()
    }

    /// Resolves when work should wrap up: `drain` before the end of the term, or `stop_grace` before it if the leader
    /// stops or hands over. Cancel safe.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("outbox").start()?;
    /// # let handle = election.clone();
    /// election
    ///     .run_while_leader(async |term| {
    /// #       handle.stop();
    ///         tokio::select! {
    ///             () = term.ending() => println!("wrapping up"),
    ///             () = std::future::pending() => {} // the work itself
    ///         }
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ending(&self) {
        self.state.reached(Stage::Ending).await;
    }

    /// Resolves when the term is over: its work has returned, or its time is up. Cancel safe.
    ///
    /// Work in a `run_…` method must wait for [`Term::ending`] instead: the term ends only after that work has
    /// returned, or when its time is up.
    pub async fn ended(&self) {
        self.state.reached(Stage::Over).await;
    }

    /// Returns a token that is cancelled when work should wrap up ([`Term::ending`]), for code that takes a
    /// cancellation token. Cancelling it yourself does not end the term.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.state.cancellation_token()
    }

    pub(crate) fn new(state: Arc<TermState>) -> Self {
        Self { state, _release: None }
    }

    /// Returns a handle of this term whose last clone releases the seat.
    pub(crate) fn releasing(state: Arc<TermState>) -> Self {
        let mut known = state.release.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let release = known.upgrade().unwrap_or_else(|| {
            let (handle, election, token) = (state.handle.clone(), state.shared.id, state.token);
            Arc::new(ReleaseOnDrop { handle, election, token })
        });
        *known = Arc::downgrade(&release);
        drop(known);
        Self { state, _release: Some(release) }
    }

    /// Registers work of this term until the guard is dropped; `None` if the term is ending.
    pub(crate) fn enter(&self) -> Option<WorkGuard> {
        self.state.enter()
    }

    /// Registers work until the guard is dropped, even if the term is ending.
    pub(crate) fn hold_open(&self) -> WorkGuard {
        self.state.hold_open()
    }

    /// Returns the error for work that was dropped at the end of this term.
    pub(crate) fn loss(&self) -> Ended {
        let why = self.end_reason().unwrap_or(EndReason::NotRenewed);
        Ended::TermEnded { token: self.token(), why }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("token", &self.token()).field("is_current", &self.is_current()).finish()
    }
}

/// The state that all handles of a term share.
pub(crate) struct TermState {
    token: Token,
    shared: Arc<Shared>,
    /// The moment at which the term ends if it is not renewed, in nanoseconds of the clock.
    until: AtomicU64,
    /// Notified when `until` changes.
    moved: Notify,
    /// Notified when work should wrap up, and when the term is over.
    stage_changed: Notify,
    why: OnceLock<EndReason>,
    work: Mutex<WorkState>,
    release: Mutex<Weak<ReleaseOnDrop>>,
    handle: EngineHandle,
}

#[derive(Default)]
struct WorkState {
    running: usize,
    stage: Stage,
    /// Cancelled when work should wrap up. Created when the first cancellation token is asked for.
    cancel: Option<CancellationToken>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Running,
    /// Work should wrap up, and no new work can start.
    Ending,
    Over,
}

impl fmt::Debug for TermState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermState").field("token", &self.token).finish_non_exhaustive()
    }
}

impl TermState {
    pub(crate) fn new(token: Token, until: Moment, shared: Arc<Shared>, handle: EngineHandle) -> Self {
        Self {
            token,
            shared,
            until: AtomicU64::new(until.as_nanos()),
            moved: Notify::new(),
            stage_changed: Notify::new(),
            why: OnceLock::new(),
            work: Mutex::default(),
            release: Mutex::default(),
            handle,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn is_current(&self) -> bool {
        self.shared.clock.now() < self.until()
    }

    pub(crate) fn extend(&self, until: Moment) {
        self.until.store(until.as_nanos(), Ordering::Release);
        self.moved.notify_waiters();
    }

    /// Notifies work to wrap up, and lets no new work start. Returns whether no work is running.
    pub(crate) fn end(&self, why: EndReason, by: Moment) -> bool {
        self.extend(by);
        let _ = self.why.set(why);
        self.move_to(Stage::Ending) == 0
    }

    /// Ends the term, and notifies all waiters.
    pub(crate) fn finish(&self) {
        self.extend(Moment::ORIGIN);
        self.move_to(Stage::Over);
    }

    /// Moves to a stage, notifies all waiters, and returns the amount of work that is still running.
    fn move_to(&self, stage: Stage) -> usize {
        let mut work = self.work();
        work.stage = work.stage.max(stage);
        let (running, cancel) = (work.running, work.cancel.clone());
        drop(work);
        self.stage_changed.notify_waiters();
        if let Some(cancel) = cancel {
            cancel.cancel();
        }
        running
    }

    async fn reached(&self, stage: Stage) {
        loop {
            let turned = self.stage_changed.notified();
            if self.work().stage >= stage {
                return;
            }
            turned.await;
        }
    }

    fn cancellation_token(&self) -> CancellationToken {
        let mut work = self.work();
        let is_ending = work.stage >= Stage::Ending;
        let token = work.cancel.get_or_insert_default().child_token();
        if is_ending {
            token.cancel();
        }
        token
    }

    /// Registers work even if the term is not current: for handlers that run because the term ends.
    pub(crate) fn hold_open(self: &Arc<Self>) -> WorkGuard {
        self.work().running += 1;
        WorkGuard(self.clone())
    }

    /// Returns whether a handle exists that releases the seat when it is dropped.
    pub(crate) fn is_held(&self) -> bool {
        self.release.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).strong_count() > 0
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.work().stage >= Stage::Ending
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Option<WorkGuard> {
        let mut work = self.work();
        if work.stage >= Stage::Ending || !self.is_current() {
            return None;
        }
        work.running += 1;
        Some(WorkGuard(self.clone()))
    }

    fn until(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Acquire))
    }

    fn work(&self) -> MutexGuard<'_, WorkState> {
        self.work.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A guard for work of a term, from [`Term::begin_work`]. Dropping it reports that the work has ended.
#[derive(Debug)]
#[must_use = "dropping the guard reports that the work has ended"]
pub struct Work(#[expect(dead_code, reason = "only to be dropped")] WorkGuard);

/// A guard for work that the end of the term waits for.
pub(crate) struct WorkGuard(Arc<TermState>);

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let mut work = self.0.work();
        work.running -= 1;
        let drained = work.stage >= Stage::Ending && work.running == 0;
        drop(work);
        if drained {
            self.0.handle.drained(self.0.shared.id, self.0.token);
        }
    }
}

impl fmt::Debug for WorkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkGuard").field(&self.0.token).finish()
    }
}

struct ReleaseOnDrop {
    handle: EngineHandle,
    election: ElectionId,
    token: Token,
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.handle.release(self.election, self.token);
    }
}

#[cfg(test)]
impl Term {
    pub(crate) fn for_tests(token: Token) -> Self {
        let state = TermState::new(token, Moment::ORIGIN, Shared::for_tests(), EngineHandle::for_tests());
        Self::new(Arc::new(state))
    }
}
