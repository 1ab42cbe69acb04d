//! Every law on the memory store, in each of its kinds.
//!
//! `TENURE_TEST_PATIENCE=3` sets the time-out of waits in seconds, for runs in which a law is expected to fail.

use std::time::Duration;

use tenure_core::{LifeKind, Takeover};
use tenure_testkit::{Kit, MemorySubject};

fn main() {
    Kit::new()
        .subject("observe", memory(LifeKind::Observe))
        .subject("clock", memory(LifeKind::Clock))
        .subject("session", memory(LifeKind::Session))
        .subject("session_safe", memory(LifeKind::Session).takeover(Takeover::Safe))
        .subject("lock", memory(LifeKind::Lock))
        .run();
}

fn memory(kind: LifeKind) -> MemorySubject {
    let subject = MemorySubject::new(kind);
    match std::env::var("TENURE_TEST_PATIENCE").ok().and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => subject.patience(Duration::from_secs(seconds)),
        None => subject,
    }
}
