//! Counts and times what happens, through the `metrics` facade: install the recorder you like.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `tenure_store_calls_total` | counter | `store`, `call`, `outcome` |
//! | `tenure_store_call_seconds` | histogram | `store`, `call` |
//! | `tenure_is_leader` | gauge, 0 or 1 | `election` |
//! | `tenure_terms_total` | counter | `election` |
//! | `tenure_term_ends_total` | counter | `election`, `why` |
//! | `tenure_store_errors_total` | counter, of changes from working to failing | `election` |
//! | `tenure_overruns_total` | counter | `election` |

use std::future::Future;
use std::time::Instant;

use metrics::{counter, gauge, histogram};

use super::Outcome;
use crate::{
    Change, Clock, DynBoard, Event, Promises, Reading, Record, SeatName, Seen, Store, StoreError, Swap, Version, Why,
    log,
};

/// A store whose calls are counted and timed.
///
/// What happens in elections is counted by the engine itself, with or without this.
#[derive(Clone, Debug)]
pub struct Measured<S> {
    store: S,
    name: &'static str,
}

impl<S: Store> Measured<S> {
    /// This store, measured.
    pub fn new(store: S) -> Self {
        let name = store.promises().store;
        Self { store, name }
    }

    async fn measured<T: Outcome>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut measure = Measure { store: self.name, call, began: Instant::now(), outcome: "given up" };
        let answer = answer.await;
        measure.outcome = answer.outcome();
        answer
    }
}

/// Counted when dropped, and so also if the call was given up.
struct Measure {
    store: &'static str,
    call: &'static str,
    began: Instant,
    outcome: &'static str,
}

impl Drop for Measure {
    fn drop(&mut self) {
        let Self { store, call, began, outcome } = *self;
        let took = began.elapsed();
        log::update(move || {
            counter!("tenure_store_calls_total", "store" => store, "call" => call, "outcome" => outcome).increment(1);
            histogram!("tenure_store_call_seconds", "store" => store, "call" => call).record(took);
        });
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Measured<S> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.measured("read", self.store.read(seat)).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.measured("swap", self.store.swap(seat, expected, next)).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.measured("renew", self.store.renew(seat, held, record)).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.store.changed(seat, seen).await
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        self.store.board()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<crate::Lifeline>> {
        self.store.lifeline(seat)
    }
}

/// Counts what the engine tells.
pub(crate) fn count(election: &SeatName, event: &Event) {
    let election = election.to_string();
    match *event {
        Event::BecameLeader { .. } => log::update(move || {
            gauge!("tenure_is_leader", "election" => election.clone()).set(1.0);
            counter!("tenure_terms_total", "election" => election).increment(1);
        }),
        Event::Ending { .. } => {
            log::update(move || gauge!("tenure_is_leader", "election" => election).set(0.0));
        }
        Event::LostLeadership { why, .. } => log::update(move || {
            counter!("tenure_term_ends_total", "election" => election, "why" => label(why)).increment(1);
        }),
        Event::Error { .. } => {
            log::update(move || counter!("tenure_store_errors_total", "election" => election).increment(1));
        }
        Event::Overran { .. } => {
            log::update(move || counter!("tenure_overruns_total", "election" => election).increment(1));
        }
        _ => {}
    }
}

fn label(why: Why) -> &'static str {
    match why {
        Why::NotRenewed => "not_renewed",
        Why::SeatLost => "seat_lost",
        Why::SeatVanished => "seat_vanished",
        Why::SessionOver => "session_over",
        Why::SteppedDown => "stepped_down",
        Why::Unhealthy => "unhealthy",
        Why::Released => "released",
        Why::Stopped => "stopped",
        Why::EngineGone => "engine_gone",
    }
}
