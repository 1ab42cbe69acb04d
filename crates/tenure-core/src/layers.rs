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

#[cfg(feature = "metrics")]
pub use self::metrics::Measured;
pub use self::trace::Traced;

use crate::{Fault, Reading, StoreError, Swap};

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
        match self {
            Ok(answer) => answer.outcome(),
            Err(error) => match error.fault() {
                Fault::Refused => "refused",
                Fault::Unknown => "unknown",
                Fault::Denied => "denied",
            },
        }
    }
}
