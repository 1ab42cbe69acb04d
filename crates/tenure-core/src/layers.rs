//! Layers around a store: they see every call and change none.
//!
//! ```
//! # use tenure_core::{Elections, memory::MemoryStore, layers::Traced};
//! let elections = Elections::new(Traced::new(MemoryStore::new()));
//! ```
//!
//! There is no layer that retries: retrying inside a store would hide when a write was sent. The
//! engine retries.

#[cfg(feature = "metrics")]
pub(crate) mod metrics;
mod trace;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[cfg(feature = "metrics")]
pub use self::metrics::Measured;
pub use self::trace::Traced;
use crate::{
    Answers, Call, Clock, DynNotes, Expect, Fault, Interest, Lifeline, News, Promises, Reading, SeatName, SessionId,
    Store, StoreError, Swap, Version, Write,
};

/// A store with somebody who is told of every call to it.
#[derive(Clone, Debug)]
pub struct Layer<S, T> {
    store: S,
    teller: T,
}

/// Is told of calls.
trait Tell: Clone + Send + Sync + 'static {
    fn tell(&self, told: Notification<'_>);
}

/// How a call about a seat ended.
struct Notification<'a> {
    call: &'static str,
    seat: &'a SeatName,
    outcome: &'static str,
    took: Duration,
    error: Option<&'a StoreError>,
}

/// A call that is under way, and who of it has been answered. Those that have not when it is given up are told of, too.
struct Tally<T: Tell> {
    teller: T,
    began: Instant,
    /// `None` once it was answered.
    seats: Vec<Option<(&'static str, SeatName)>>,
}

impl<T: Tell> Tally<T> {
    fn new(teller: &T, seats: impl Iterator<Item = (&'static str, SeatName)>) -> Arc<Mutex<Self>> {
        let tally = Self { teller: teller.clone(), began: Instant::now(), seats: seats.map(Some).collect() };
        Arc::new(Mutex::new(tally))
    }

    fn answered(&mut self, place: usize, outcome: &'static str, error: Option<&StoreError>) {
        if let Some((call, seat)) = self.seats.get_mut(place).and_then(Option::take) {
            self.teller.tell(Notification { call, seat: &seat, outcome, took: self.began.elapsed(), error });
        }
    }

    fn rest(&mut self, outcome: &'static str, error: Option<&StoreError>) {
        (0..self.seats.len()).for_each(|place| self.answered(place, outcome, error));
    }
}

impl<T: Tell> Drop for Tally<T> {
    fn drop(&mut self) {
        self.rest("given up", None);
    }
}

/// Tells of each answer before it is handed on.
fn telling<A: Outcome + Send + 'static, T: Tell>(tally: &Arc<Mutex<Tally<T>>>, to: &Answers<A>) -> Answers<A> {
    let (tally, to) = (Arc::downgrade(tally), to.clone());
    Answers::new(move |place, answer: Result<A, StoreError>| {
        if let Some(tally) = tally.upgrade() {
            lock(&tally).answered(place, answer.outcome(), answer.as_ref().err());
        }
        to.set(place, answer);
    })
}

/// Tells of what a call has left without an answer.
fn ended<T: Tell>(tally: &Mutex<Tally<T>>, ended: Result<(), StoreError>) -> Result<(), StoreError> {
    if let Err(error) = &ended {
        lock(tally).rest(outcome(error), Some(error));
    }
    ended
}

fn lock<T: Tell>(tally: &Mutex<Tally<T>>) -> MutexGuard<'_, Tally<T>> {
    tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[deny(clippy::missing_trait_methods)]
#[allow(private_bounds, reason = "there are two kinds of layers, and no more")]
impl<S: Store, T: Tell> Store for Layer<S, T> {
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
        let tally = Tally::new(&self.teller, seats.iter().map(|seat| ("read", seat.clone())));
        ended(&tally, self.store.read(call, seats, &telling(&tally, to)).await)
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let name = |write: &Write| if matches!(write.expect, Expect::Held(_)) { "renew" } else { "swap" };
        let tally = Tally::new(&self.teller, writes.iter().map(|write| (name(write), write.seat.clone())));
        ended(&tally, self.store.write(call, writes, &telling(&tally, to)).await)
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

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        self.store.lifeline(seat)
    }
}

/// One word for how a call ended.
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
    match error.fault() {
        Fault::Refused => "refused",
        Fault::Unknown => "unknown",
        Fault::Denied => "denied",
    }
}
