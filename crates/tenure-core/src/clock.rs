//! The clock of the engine, and a clock for tests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use tenure_protocol::Moment;
use tracing::{Level, error};

use crate::{log, os};

/// The clock of the engine: the machine's own, which also counts while the machine is suspended, or a [`ManualClock`]
/// that a test moves by hand. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Clock(Kind);

#[derive(Clone, Debug, Default)]
enum Kind {
    #[default]
    System,
    Manual(ManualClock),
}

impl Clock {
    /// Returns the machine's clock: `CLOCK_BOOTTIME` on Linux.
    pub const fn system() -> Self {
        Self(Kind::System)
    }

    /// Returns the current time, as a moment that only this machine's clock can compare.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Kind::System => os::now(),
            Kind::Manual(clock) => clock.now(),
        }
    }

    /// Resolves at this moment, or soon after. Cancel safe.
    ///
    /// It must be awaited on the engine's thread, so only stores can use it.
    pub async fn sleep_until(&self, moment: Moment) {
        match &self.0 {
            Kind::System => loop {
                let left = moment.since(os::now());
                if left.is_zero() {
                    return;
                }
                // tokio's timers stop while the machine is suspended, so each sleep is short.
                tokio::time::sleep(left.min(Duration::from_secs(1))).await;
            },
            Kind::Manual(clock) => clock.sleep_until(moment).await,
        }
    }

    /// Registers activity on another thread. A manual clock waits until the guard is dropped.
    pub(crate) fn busy(&self) -> Option<Busy> {
        match &self.0 {
            Kind::System => None,
            Kind::Manual(clock) => {
                clock.lock().busy += 1;
                Some(Busy(clock.clone()))
            }
        }
    }

    /// Notifies a manual clock that an engine has something to do, so that the clock waits for it. Call it after every
    /// command to an engine.
    pub(crate) fn nudge(&self) {
        if let Kind::Manual(clock) = &self.0 {
            clock.nudge();
        }
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Kind::Manual(clock))
    }
}

/// A clock that a test moves by hand. Clones are the same clock.
///
/// At each moment, all engines on this clock and their handlers finish what is due before [`advance`] moves on to the
/// next. So a test over a memory store is exact and takes no real time. The clock does not wait for work on the test's
/// own runtime, nor for the engine to notice a cancelled `stop_on` token: wait for their effects, such as `stopped()`.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core::ManualClock;
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600)); // returns at once
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
///
/// [`advance`]: ManualClock::advance
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    parked: Condvar,
}

#[derive(Debug)]
struct State {
    now: Moment,
    /// Increased by every event that can give an engine something to do.
    generation: u64,
    sleepers: Vec<Sleeper>,
    /// The number of activities on other threads, such as handlers.
    busy: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Sleeper {
    id: u64,
    until: Option<Moment>,
    /// The generation in which an engine found nothing left to do; `None` if this sleeper is not an engine.
    idle_in: Option<u64>,
    waker: Option<Waker>,
}

impl Default for State {
    fn default() -> Self {
        // Not zero, because a moment of zero means "never" in some places.
        Self { now: Moment::from_nanos(1_000_000_000), generation: 0, sleepers: Vec::new(), busy: 0, next_id: 0 }
    }
}

impl ManualClock {
    /// Creates a clock that stands still until a test moves it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time to which the clock was last moved.
    pub fn now(&self) -> Moment {
        self.lock().now
    }

    /// Moves the clock forward in steps, to every moment at which an engine has something to do, and returns when all
    /// engines have done it.
    ///
    /// Blocks the calling thread. Handlers must not call it, because it waits for them.
    pub fn advance(&self, span: Duration) {
        let target = self.now() + span;
        loop {
            let mut state = self.settled();
            let next =
                state.sleepers.iter().filter_map(|sleeper| sleeper.until).filter(|until| *until > state.now).min();
            let done = next.is_none_or(|next| next > target);
            state.now = next.map_or(target, |next| next.min(target)).max(state.now);
            Self::wake(&mut state);
            drop(state);
            if done {
                drop(self.settled());
                return;
            }
        }
    }

    /// Moves the clock forward in one jump, as if all processes had been paused for that time.
    pub fn jump(&self, span: Duration) {
        let mut state = self.settled();
        state.now = state.now + span;
        Self::wake(&mut state);
        drop(state);
        drop(self.settled());
    }

    /// Waits until all engines and their handlers have done what is due now. Blocks the calling thread.
    pub fn settle(&self) {
        drop(self.settled());
    }

    fn settled(&self) -> MutexGuard<'_, State> {
        let state = self.lock();
        self.0
            .parked
            .wait_while(state, |state| {
                let generation = state.generation;
                state.busy > 0
                    || state.sleepers.iter().any(|sleeper| sleeper.idle_in.is_some_and(|idle| idle != generation))
            })
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn nudge(&self) {
        Self::wake(&mut self.lock());
    }

    fn wake(state: &mut State) {
        state.generation += 1;
        for sleeper in &mut state.sleepers {
            if let Some(waker) = sleeper.waker.take() {
                waker.wake();
            }
        }
    }

    async fn sleep_until(&self, moment: Moment) {
        let registration = self.register(None);
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            if state.now >= moment {
                return Poll::Ready(());
            }
            let sleeper = registration.find(&mut state);
            sleeper.until = Some(moment);
            sleeper.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn register(&self, idle_in: Option<u64>) -> Registration {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.sleepers.push(Sleeper { id, until: None, idle_in, waker: None });
        Registration { clock: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// An activity that a manual clock waits for.
#[derive(Debug)]
pub(crate) struct Busy(ManualClock);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.0.parked.notify_all();
    }
}

/// An entry in the list of a clock's sleepers, which is removed when this is dropped.
struct Registration {
    clock: ManualClock,
    id: u64,
}

impl Registration {
    fn find<'a>(&self, state: &'a mut State) -> &'a mut Sleeper {
        state.sleepers.iter_mut().find(|sleeper| sleeper.id == self.id).expect("registered until dropped")
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        state.sleepers.retain(|sleeper| sleeper.id != self.id);
        self.clock.0.parked.notify_all();
    }
}

/// The alarm of an engine, which wakes it at the next due moment.
pub(crate) struct Alarm(AlarmKind);

enum AlarmKind {
    System(os::Timer),
    Manual(Registration),
}

impl Alarm {
    /// Creates an alarm. Must be called within a tokio runtime.
    pub(crate) fn new(clock: &Clock) -> std::io::Result<Self> {
        Ok(Self(match &clock.0 {
            Kind::System => AlarmKind::System(os::Timer::new()?),
            Kind::Manual(clock) => AlarmKind::Manual(clock.register(Some(u64::MAX))),
        }))
    }

    /// Returns the current generation. Read it before looking for something to do, and pass it to [`Alarm::wait`].
    pub(crate) fn generation(&self) -> u64 {
        match &self.0 {
            AlarmKind::System(_) => 0,
            AlarmKind::Manual(registration) => registration.clock.lock().generation,
        }
    }

    /// Resolves at this moment, or if the generation changes. Await it only when there is nothing else to do.
    pub(crate) async fn wait(&mut self, until: Option<Moment>, generation: u64) {
        match &mut self.0 {
            AlarmKind::System(timer) => {
                let Some(until) = until else { return std::future::pending().await };
                if let Err(error) = timer.wait(until).await {
                    log::emit(
                        Level::ERROR,
                        move || error!(%error, "the timer failed; the engine reads the clock again in 10 ms"),
                    );
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            AlarmKind::Manual(registration) => {
                std::future::poll_fn(|context| {
                    let mut state = registration.clock.lock();
                    if state.generation != generation || until.is_some_and(|until| state.now >= until) {
                        return Poll::Ready(());
                    }
                    let sleeper = registration.find(&mut state);
                    sleeper.until = until;
                    sleeper.idle_in = Some(generation);
                    sleeper.waker = Some(context.waker().clone());
                    registration.clock.0.parked.notify_all();
                    Poll::Pending
                })
                .await;
            }
        }
    }
}
