//! Every law on the memory store, in each of its kinds.

use tenure_core::{LifeKind, TakeoverOption};
use tenure_testkit::{Kit, MemorySubject};

fn main() {
    Kit::new()
        .subject("observe", MemorySubject::new(LifeKind::Observe))
        .subject("clock", MemorySubject::new(LifeKind::Clock))
        .subject("session", MemorySubject::new(LifeKind::Session))
        .subject("session_safe", MemorySubject::new(LifeKind::Session).takeover(TakeoverOption::Safe))
        .subject("lock", MemorySubject::new(LifeKind::Lock))
        .run();
}
