//! Layers around a store, which observe all calls and change none: [`Traced`] and `Measured` report them, and
//! `LastWills` keeps a companion informed.
//!
//! ```
//! # use tenure_core::{Elections, memory::MemoryStore, layers::Traced};
//! let elections = Elections::new(Traced::new(MemoryStore::new()));
//! ```
//!
//! There is no layer that retries, because a retry inside a store would hide when a write was sent. The engine retries.

#[cfg(unix)]
mod last_will;
#[cfg(feature = "metrics")]
mod metrics;
mod trace;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[cfg(unix)]
pub use self::last_will::LastWills;
#[cfg(feature = "metrics")]
pub use self::metrics::Measured;
pub use self::trace::Traced;
use crate::{
    Answers, Call, Clock, DynNotes, Expect, Fault, Interest, Lifeline, News, Promises, Reading, SeatName, SessionId,
    Store, StoreError, Swap, Version, Write,
};

/// A store in a layer that observes all calls to it. See [`Traced`] and, with the feature `metrics`, `Measured`.
#[derive(Clone, Debug)]
pub struct Layer<S, T> {
    store: S,
    observer: T,
}

/// Observes the results of calls.
trait ObserveCalls: Clone + Send + Sync + 'static {
    fn observe(&self, result: CallResult<'_>);
}

/// The result of a call about one seat.
struct CallResult<'a> {
    call: &'static str,
    seat: &'a SeatName,
    outcome: &'static str,
    took: Duration,
    error: Option<&'a StoreError>,
}

/// A call in flight and its seats without an answer. If the call is cancelled, those seats are reported as well.
struct ObservedCall<T: ObserveCalls> {
    observer: T,
    began: Instant,
    /// The seats of the call; `None` if a seat was answered.
    seats: Vec<Option<(&'static str, SeatName)>>,
}

impl<T: ObserveCalls> ObservedCall<T> {
    fn new(observer: &T, seats: impl Iterator<Item = (&'static str, SeatName)>) -> Arc<Mutex<Self>> {
        let call = Self { observer: observer.clone(), began: Instant::now(), seats: seats.map(Some).collect() };
        Arc::new(Mutex::new(call))
    }

    fn answered(&mut self, place: usize, outcome: &'static str, error: Option<&StoreError>) {
        if let Some((call, seat)) = self.seats.get_mut(place).and_then(Option::take) {
            self.observer.observe(CallResult { call, seat: &seat, outcome, took: self.began.elapsed(), error });
        }
    }

    fn rest(&mut self, outcome: &'static str, error: Option<&StoreError>) {
        (0..self.seats.len()).for_each(|place| self.answered(place, outcome, error));
    }
}

impl<T: ObserveCalls> Drop for ObservedCall<T> {
    fn drop(&mut self) {
        self.rest(GIVEN_UP, None);
    }
}

/// Reports each answer before it is passed on.
fn observed<A: Outcome + Send + 'static, T: ObserveCalls>(
    call: &Arc<Mutex<ObservedCall<T>>>,
    to: &Answers<A>,
) -> Answers<A> {
    let (call, to) = (Arc::downgrade(call), to.clone());
    Answers::new(move |place, answer: Result<A, StoreError>| {
        if let Some(call) = call.upgrade() {
            lock(&call).answered(place, answer.outcome(), answer.as_ref().err());
        }
        to.set(place, answer);
    })
}

/// Reports the seats that a failed call has left without an answer.
fn ended<T: ObserveCalls>(call: &Mutex<ObservedCall<T>>, ended: Result<(), StoreError>) -> Result<(), StoreError> {
    if let Err(error) = &ended {
        lock(call).rest(outcome(error), Some(error));
    }
    ended
}

fn lock<T: ObserveCalls>(call: &Mutex<ObservedCall<T>>) -> MutexGuard<'_, ObservedCall<T>> {
    call.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[deny(clippy::missing_trait_methods)]
#[allow(private_bounds, reason = "there are two kinds of layers, and no more")]
impl<S: Store, T: ObserveCalls> Store for Layer<S, T> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.store.attach(clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        self.store.shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let observed_call = ObservedCall::new(&self.observer, seats.iter().map(|seat| ("read", seat.clone())));
        ended(&observed_call, self.store.read(call, seats, &observed(&observed_call, to)).await)
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let name = |write: &Write| if matches!(write.expect, Expect::Held(_)) { "renew" } else { "swap" };
        let observed_call =
            ObservedCall::new(&self.observer, writes.iter().map(|write| (name(write), write.seat.clone())));
        ended(&observed_call, self.store.write(call, writes, &observed(&observed_call, to)).await)
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        self.store.session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.store.watch(interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.store.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.store.list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        self.store.lifeline(seat)
    }
}

/// Returns the outcome of a call as one word.
trait Outcome {
    fn outcome(&self) -> &'static str;
}

impl Outcome for Reading {
    fn outcome(&self) -> &'static str {
        match &self.seat {
            None => "none",
            Some(seat) if seat.record.is_vacant() => "vacant",
            Some(_) => "held",
        }
    }
}

impl Outcome for Swap {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Lost => "lost",
        }
    }
}

impl<T: Outcome> Outcome for Result<T, StoreError> {
    fn outcome(&self) -> &'static str {
        self.as_ref().map_or_else(outcome, Outcome::outcome)
    }
}

fn outcome(error: &StoreError) -> &'static str {
    fault_label(error.fault())
}

/// The outcome of a call that was cancelled before its answer.
pub(crate) const GIVEN_UP: &str = "given_up";

/// Returns a fault as one word.
pub(crate) const fn fault_label(fault: Fault) -> &'static str {
    match fault {
        Fault::Refused => "refused",
        Fault::Unknown => "unknown",
        Fault::Denied => "denied",
    }
}
