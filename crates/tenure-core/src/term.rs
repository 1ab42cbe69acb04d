//! A term: the right to act as the leader, for as long as it lasts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tenure_protocol::{EndReason, Moment, Token};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::driver::{ElectionId, EngineHandle};
use crate::{Clock, Ended};

/// One stretch of leadership. Only the engine makes one.
///
/// A cheap view: cloning it costs little, and dropping it releases nothing, except for the last
/// one that `try_acquire()` has returned on a `.manual()` election. The engine waits for the work
/// of the `run_…` calls before it gives up the seat, but not for whoever holds a bare `Term`.
#[derive(Clone)]
pub struct Term {
    state: Arc<TermState>,
    /// Gives up the seat with the last clone.
    _release: Option<Arc<ReleaseOnDrop>>,
}

impl Term {
    /// The number of this term, which only ever rises: hand it to whatever you write to, and have
    /// it refuse lower ones.
    pub fn token(&self) -> Token {
        self.state.token
    }

    /// Whether this term may be counted on now. Reads the clock at the call, so it is false after
    /// the hold even if the process was paused. True while work wraps up, though the election's
    /// `is_leader()` is false by then.
    pub fn is_current(&self) -> bool {
        self.state.is_current()
    }

    /// How long this term can be counted on, unless it is extended, which it usually is.
    pub fn remaining(&self) -> Duration {
        self.state.until().since(self.state.clock.now())
    }

    /// The moment that this term can be counted on until, unless it is extended: on the clock of the
    /// engine, which on Linux is the `CLOCK_BOOTTIME` that all processes of the machine share.
    pub fn deadline(&self) -> Moment {
        self.state.until()
    }

    /// Resolves with the [deadline](Self::deadline) once it is another than the one known: after each
    /// renewal, when work shall wrap up, and when the term is over. For work that lives elsewhere, say
    /// in another process, and has to be told. Safe to drop.
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

    /// Counts as work of this term until what this returns is dropped: the seat is not given up
    /// before that, even if the term is over, and this candidate does not stand again. `None` if the
    /// term is ending. For work that the engine cannot cut; prefer the `run_…` calls for all other.
    pub fn begin_work(&self) -> Option<Work> {
        self.enter().map(Work)
    }

    /// Resolves when work shall wrap up. Safe to drop.
    pub async fn ending(&self) {
        self.state.has_come_to(Stage::Ending).await;
    }

    /// Resolves when the term is over. Safe to drop.
    ///
    /// Work that runs in a `run_…` call must not wait for this, but for [`Term::ending`]: the term
    /// is not over before the work has returned, or its time is up.
    pub async fn ended(&self) {
        self.state.has_come_to(Stage::Over).await;
    }

    /// A token that is cancelled when work shall wrap up ([`Term::ending`]), for code that takes
    /// one. Cancelling it ends nothing.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.state.cancellation_token()
    }

    pub(crate) fn new(state: Arc<TermState>) -> Self {
        Self { state, _release: None }
    }

    /// The same term, given up with the last clone of what this returns.
    pub(crate) fn releasing(state: Arc<TermState>) -> Self {
        let mut known = state.release.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let release = known.upgrade().unwrap_or_else(|| {
            let (handle, election, token) = (state.handle.clone(), state.election, state.token);
            Arc::new(ReleaseOnDrop { handle, election, token })
        });
        *known = Arc::downgrade(&release);
        drop(known);
        Self { state, _release: Some(release) }
    }

    /// Counts as work of this term until the guard is dropped; `None` if it is ending.
    pub(crate) fn enter(&self) -> Option<WorkGuard> {
        self.state.enter()
    }

    /// What to tell work that was cut short.
    pub(crate) fn loss(&self) -> Ended {
        let why = self.state.why.get().copied().unwrap_or(EndReason::NotRenewed);
        Ended::TermEnded { token: self.token(), why }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("token", &self.token()).field("is_current", &self.is_current()).finish()
    }
}

/// What all views of a term share.
pub(crate) struct TermState {
    token: Token,
    clock: Clock,
    /// Until when it may be counted on, in nanoseconds of the clock.
    until: AtomicU64,
    /// Told whenever that changes.
    moved: Notify,
    /// Told when work shall wrap up, and when the term is over.
    turned: Notify,
    why: OnceLock<EndReason>,
    work: Mutex<Tally>,
    release: Mutex<Weak<ReleaseOnDrop>>,
    handle: EngineHandle,
    election: ElectionId,
}

#[derive(Default)]
struct Tally {
    running: usize,
    stage: Stage,
    /// Cancelled when work shall wrap up; made for the first who asks for one.
    cancel: Option<CancellationToken>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Running,
    /// Work shall wrap up, and no more may begin.
    Ending,
    Over,
}

impl fmt::Debug for TermState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermState").field("token", &self.token).finish_non_exhaustive()
    }
}

impl TermState {
    pub(crate) fn new(token: Token, until: Moment, clock: Clock, handle: EngineHandle, election: ElectionId) -> Self {
        Self {
            token,
            clock,
            until: AtomicU64::new(until.as_nanos()),
            moved: Notify::new(),
            turned: Notify::new(),
            why: OnceLock::new(),
            work: Mutex::default(),
            release: Mutex::default(),
            handle,
            election,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn is_current(&self) -> bool {
        self.clock.now() < self.until()
    }

    pub(crate) fn extend(&self, until: Moment) {
        self.until.store(until.as_nanos(), Ordering::Release);
        self.moved.notify_waiters();
    }

    /// Tells work to wrap up; no more may begin. Returns whether none is running.
    pub(crate) fn end(&self, why: EndReason, by: Moment) -> bool {
        self.extend(by);
        let _ = self.why.set(why);
        self.turn(Stage::Ending) == 0
    }

    /// Tells that the term is over.
    pub(crate) fn finish(&self) {
        self.extend(Moment::ORIGIN);
        self.turn(Stage::Over);
    }

    /// Tells whoever waits for it, and returns how much work is running.
    fn turn(&self, stage: Stage) -> usize {
        let mut work = self.work();
        work.stage = work.stage.max(stage);
        let (running, cancel) = (work.running, work.cancel.clone());
        drop(work);
        self.turned.notify_waiters();
        if let Some(cancel) = cancel {
            cancel.cancel();
        }
        running
    }

    async fn has_come_to(&self, stage: Stage) {
        loop {
            let turned = self.turned.notified();
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

    /// Counts as work whether the term is current or not: for what its end itself brings about.
    pub(crate) fn hold_open(self: &Arc<Self>) -> WorkGuard {
        self.work().running += 1;
        WorkGuard(self.clone())
    }

    /// Whether somebody holds a clone of it that gives up the seat when dropped.
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

    fn work(&self) -> MutexGuard<'_, Tally> {
        self.work.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Work of a term, as [`Term::begin_work`] returns it. It has returned when this is dropped.
#[derive(Debug)]
#[must_use = "the work counts as returned when this is dropped"]
pub struct Work(#[expect(dead_code, reason = "only to be dropped")] WorkGuard);

/// Work that the end of a term waits for.
pub(crate) struct WorkGuard(Arc<TermState>);

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let mut work = self.0.work();
        work.running -= 1;
        let drained = work.stage >= Stage::Ending && work.running == 0;
        drop(work);
        if drained {
            self.0.handle.drained(self.0.election, self.0.token);
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
        let state = TermState::new(token, Moment::ORIGIN, Clock::system(), EngineHandle::for_tests(), ElectionId(0));
        Self::new(Arc::new(state))
    }
}
