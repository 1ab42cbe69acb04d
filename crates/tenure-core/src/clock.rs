//! The clock that terms are counted by.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use tenure_protocol::Moment;
use tracing::{Level, error};

use crate::{log, os};

/// The clock that terms are counted by: the machine's own, which goes on counting while the
/// machine is suspended, or one that a test moves by hand. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Clock(Kind);

#[derive(Clone, Debug, Default)]
enum Kind {
    #[default]
    System,
    Manual(ManualClock),
}

impl Clock {
    /// The machine's own clock.
    pub const fn system() -> Self {
        Self(Kind::System)
    }

    /// What time it is.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Kind::System => os::now(),
            Kind::Manual(clock) => clock.now(),
        }
    }

    /// Resolves at this moment, or soon after. To be awaited on the engine's thread, so by stores
    /// alone; it is safe to drop at any time.
    pub async fn sleep_until(&self, moment: Moment) {
        match &self.0 {
            Kind::System => loop {
                let left = moment.since(os::now());
                if left.is_zero() {
                    return;
                }
                // tokio's timers stop during suspend, so they are not believed for long.
                tokio::time::sleep(left.min(Duration::from_secs(1))).await;
            },
            Kind::Manual(clock) => clock.sleep_until(moment).await,
        }
    }

    /// Something is to be done elsewhere: a clock moved by hand waits until this is dropped.
    pub(crate) fn busy(&self) -> Option<Busy> {
        match &self.0 {
            Kind::System => None,
            Kind::Manual(clock) => {
                clock.lock().busy += 1;
                Some(Busy(clock.clone()))
            }
        }
    }

    /// To be called after giving an engine something to do, so that a clock moved by hand waits
    /// for it before it goes on.
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

/// A clock moved by hand, for tests. Clones are the same clock.
///
/// Engines on this clock do all that is to be done at one moment before [`advance`] goes on to the
/// next, and so do their handlers; a test over a memory store is exact and takes no time at all. Work
/// that runs on a runtime of the test's own is not waited for, nor is the cancelling of a `stop_on`
/// token heard at once: wait for what they bring about, such as `stopped()`.
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
    /// Raised by everything that may give an engine something to do.
    generation: u64,
    sleepers: Vec<Sleeper>,
    /// How many things are being done elsewhere, such as by handlers.
    busy: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Sleeper {
    id: u64,
    until: Option<Moment>,
    /// The generation in which an engine found nothing left to do. `None`: not an engine.
    idle_in: Option<u64>,
    waker: Option<Waker>,
}

impl Default for State {
    fn default() -> Self {
        // Not zero: a moment of zero means "never" in some places.
        Self { now: Moment::from_nanos(1_000_000_000), generation: 0, sleepers: Vec::new(), busy: 0, next_id: 0 }
    }
}

impl ManualClock {
    /// A clock that stands still until it is moved.
    pub fn new() -> Self {
        Self::default()
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        self.lock().now
    }

    /// Moves the clock, stopping at every moment that an engine has asked to be woken at, and
    /// returns when all engines have done what there was to do. Blocks the calling thread
    /// meanwhile; must not be called from a handler.
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

    /// Moves the clock in one jump, as if every process had been paused for so long.
    pub fn jump(&self, span: Duration) {
        let mut state = self.settled();
        state.now = state.now + span;
        Self::wake(&mut state);
        drop(state);
        drop(self.settled());
    }

    /// Waits until all engines have done what there is to do now.
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

/// Something that a clock moved by hand waits for.
#[derive(Debug)]
pub(crate) struct Busy(ManualClock);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.0.parked.notify_all();
    }
}

/// A place among a clock's sleepers.
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

/// An engine's alarm: the one thing that it waits for when there is nothing else to do.
pub(crate) struct Alarm(AlarmKind);

enum AlarmKind {
    System(os::Timer),
    Manual(Registration),
}

impl Alarm {
    /// Must be called on a runtime.
    pub(crate) fn new(clock: &Clock) -> std::io::Result<Self> {
        Ok(Self(match &clock.0 {
            Kind::System => AlarmKind::System(os::Timer::new()?),
            Kind::Manual(clock) => AlarmKind::Manual(clock.register(Some(u64::MAX))),
        }))
    }

    /// To be asked before looking for something to do, and handed to [`Alarm::wait`].
    pub(crate) fn generation(&self) -> u64 {
        match &self.0 {
            AlarmKind::System(_) => 0,
            AlarmKind::Manual(registration) => registration.clock.lock().generation,
        }
    }

    /// Resolves at this moment. Awaited only when there is nothing else to do.
    pub(crate) async fn wait(&mut self, until: Option<Moment>, generation: u64) {
        match &mut self.0 {
            AlarmKind::System(timer) => {
                let Some(until) = until else { return std::future::pending().await };
                if let Err(error) = timer.wait(until).await {
                    log::emit(
                        Level::ERROR,
                        move || error!(%error, "the timer failed; asking the clock again in a moment"),
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
