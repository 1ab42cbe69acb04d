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

use metrics::{counter, gauge, histogram};

use super::{Layer, Notification, Tell};
use crate::{EndReason, Event, SeatName, Store, log};

/// A store whose calls are counted and timed, for each seat in them.
///
/// What happens in elections is counted by the engine itself, with or without this.
pub type Measured<S> = Layer<S, Meter>;

/// Counts and times calls.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    store: &'static str,
}

impl<S: Store> Measured<S> {
    /// This store, measured.
    pub fn new(store: S) -> Self {
        let teller = Meter { store: store.promises().store };
        Self { store, teller }
    }
}

impl Tell for Meter {
    fn tell(&self, Notification { call, outcome, took, .. }: Notification<'_>) {
        let store = self.store;
        log::update(move || {
            counter!("tenure_store_calls_total", "store" => store, "call" => call, "outcome" => outcome).increment(1);
            histogram!("tenure_store_call_seconds", "store" => store, "call" => call).record(took);
        });
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

fn label(why: EndReason) -> &'static str {
    match why {
        EndReason::NotRenewed => "not_renewed",
        EndReason::SeatLost => "seat_lost",
        EndReason::SeatVanished => "seat_vanished",
        EndReason::SessionOver => "session_over",
        EndReason::SteppedDown => "stepped_down",
        EndReason::Unhealthy => "unhealthy",
        EndReason::Released => "released",
        EndReason::Stopped => "stopped",
        EndReason::EngineGone => "engine_gone",
    }
}
