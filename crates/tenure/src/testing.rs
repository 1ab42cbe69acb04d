//! For your own tests: a store that fails on demand, and a clock moved by hand.
//!
//! See `docs/testing.md` for a tour. All of it is exact: the engines on a [`Stage`] do whatever is
//! to be done at one moment before the clock goes on, and no test need ever sleep.

use std::time::Duration;

use crate::memory::Memory;
use crate::{Elections, Fault, LifeKind, Token};

pub use crate::ManualClock;
pub use crate::memory::{Calls, MemoryStore};

/// A stage for elections: a memory that all candidates share, and a clock moved by hand. Clones are
/// the same stage.
///
/// ```
/// use std::time::Duration;
/// use tenure::testing::Stage;
///
/// let stage = Stage::new();
/// let (one, other) = (stage.elections(), stage.elections());
/// let a = one.election("jobs").start()?;
/// stage.settle();
/// let b = other.election("jobs").start()?;
/// stage.advance(Duration::from_secs(60));
/// assert!(a.is_leader() && !b.is_leader());
///
/// a.stop();
/// stage.settle();
/// assert!(b.is_leader());
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stage {
    memory: Memory,
    clock: ManualClock,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// An empty stage, over a store that tells by its clock when a seat has lapsed.
    pub fn new() -> Self {
        Self::of_kind(LifeKind::Clock)
    }

    /// An empty stage, over a store that tells in this way that a leader is gone.
    pub fn of_kind(kind: LifeKind) -> Self {
        let clock = ManualClock::new();
        Self { memory: Memory::of_kind(kind, clock.clone()), clock }
    }

    /// The elections of another process on this stage.
    pub fn elections(&self) -> Elections {
        Elections::with_clock(self.memory.store(), self.clock.clone())
    }

    /// The memory, for more ways to make things go wrong.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The clock.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Lets time pass: leaders renew, followers look, and what lapses is taken over.
    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Lets time pass while every process is paused: leaders that come to find their time is up.
    pub fn jump(&self, span: Duration) {
        self.clock.jump(span);
    }

    /// Waits until all engines have done what there is to do now.
    pub fn settle(&self) {
        self.clock.settle();
    }

    /// Has somebody else take the seat, and returns their token.
    ///
    /// # Panics
    /// If the name cannot be used for an election.
    pub fn usurp(&self, election: &str) -> Token {
        let token = self.memory.usurp(election);
        self.settle();
        token
    }

    /// Makes the lease on the seat lapse at once: the leader loses it, and anybody may take it.
    ///
    /// # Panics
    /// If the name cannot be used for an election.
    pub fn expire(&self, election: &str) {
        self.memory.expire(election);
        self.settle();
    }

    /// Has the next call to the store fail in this way.
    pub fn fail_next(&self, fault: Fault) {
        self.memory.fail_next(fault);
    }
}
