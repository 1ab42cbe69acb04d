//! Tools for your own tests: a store that fails on demand, and a clock that tests move by hand.
//!
//! `docs/testing.md` shows the common cases. Tests are exact and need no sleep: the engines on a [`Stage`] finish
//! everything that is due at one moment before the clock moves on.

use std::time::Duration;

use crate::store::LifeKind;
use crate::{Elections, Fault, Token};

pub use tenure_core::ManualClock;
pub use tenure_core::memory::{Calls, Memory, MemoryStore};

/// A memory store that all candidates share, and a clock that the test moves by hand.
///
/// The engine that runs on a stage is the real one. Clones are the same stage.
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
    /// Creates an empty stage over a store that expires seats by its clock, as Redis and PostgreSQL do.
    pub fn new() -> Self {
        Self::of_kind(LifeKind::Clock)
    }

    /// Creates an empty stage over a store of the given kind, which says how it detects that a leader is gone.
    ///
    /// ```
    /// use tenure::{store::LifeKind, testing::Stage};
    ///
    /// let stage = Stage::of_kind(LifeKind::Session); // as etcd and Consul do
    /// # let _ = stage;
    /// ```
    pub fn of_kind(kind: LifeKind) -> Self {
        let clock = ManualClock::new();
        Self { memory: Memory::of_kind(kind, clock.clone()), clock }
    }

    /// Creates the elections of another process: each call connects separately to the shared store.
    ///
    /// ```
    /// # use tenure::testing::Stage;
    /// # let stage = Stage::new();
    /// let (one, other) = (stage.elections(), stage.elections());
    /// let a = one.election("jobs").candidate("a").start()?;
    /// stage.settle();
    /// let b = other.election("jobs").candidate("b").start()?;
    /// stage.settle();
    /// assert_eq!(b.leader().unwrap().candidate.id.as_ref(), "a");
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn elections(&self) -> Elections {
        Elections::with_clock(self.memory.store(), self.clock.clone())
    }

    /// Returns the memory, which can fail in more ways: lost answers, calls that hang, deleted seats, ended sessions.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::testing::Stage;
    /// # let stage = Stage::new();
    /// # let election = stage.elections().election("jobs").start()?;
    /// # stage.settle();
    /// stage.memory().lose_next_answer(); // the next renewal takes effect, and its answer is lost
    /// stage.advance(Duration::from_secs(15));
    /// assert!(election.is_leader());
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the clock, to read the time or to give it to your own code.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Moves the clock forward in steps. Leaders renew, followers read, and expired seats are taken over.
    ///
    /// Returns when all engines and handlers have done what is due. Blocks the calling thread; use a multi-threaded
    /// runtime in asynchronous tests.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::testing::Stage;
    /// # let stage = Stage::new();
    /// # let election = stage.elections().election("jobs").start()?;
    /// stage.advance(Duration::from_secs(3600)); // an hour of renewals, in no real time
    /// assert!(election.is_leader());
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Moves the clock forward in one jump, as if all processes were paused: a leader that resumes finds its term over.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::testing::Stage;
    /// # let stage = Stage::new();
    /// # let election = stage.elections().election("jobs").start()?;
    /// # stage.settle();
    /// let term = election.term().unwrap();
    /// stage.jump(Duration::from_secs(15));
    /// assert!(!term.is_current());
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn jump(&self, span: Duration) {
        self.clock.jump(span);
    }

    /// Waits until all engines and handlers have done what is due now. Call it after every action of the test.
    pub fn settle(&self) {
        self.clock.settle();
    }

    /// Gives the seat to another candidate, as after a partition, and returns the token of that candidate.
    ///
    /// ```
    /// # use tenure::testing::Stage;
    /// # let stage = Stage::new();
    /// # let election = stage.elections().election("jobs").start()?;
    /// # stage.settle();
    /// stage.usurp("jobs");
    /// assert!(!election.is_leader());
    /// # Ok::<(), tenure::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the name is not a valid name of an election.
    pub fn usurp(&self, election: &str) -> Token {
        let token = self.memory.usurp(election);
        self.settle();
        token
    }

    /// Vacates the seat at once, as if its lease had expired: the leader loses it, and any candidate can take it.
    ///
    /// ```
    /// # use tenure::testing::Stage;
    /// # let stage = Stage::new();
    /// # let election = stage.elections().election("jobs").start()?;
    /// # stage.settle();
    /// let before = election.term().unwrap().token();
    /// stage.expire("jobs");
    /// assert!(election.term().unwrap().token() > before); // the only candidate wins the next term
    /// # Ok::<(), tenure::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the name is not a valid name of an election.
    pub fn expire(&self, election: &str) {
        self.memory.expire(election);
        self.settle();
    }

    /// Makes the next call to the store fail with this fault, without effect. Several calls queue several failures.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::{Fault, testing::Stage};
    /// # let stage = Stage::new();
    /// # let election = stage.elections().election("jobs").start()?;
    /// # stage.settle();
    /// stage.fail_next(Fault::Refused);
    /// stage.advance(Duration::from_secs(15));
    /// assert!(election.is_leader()); // one failed renewal does not end the term
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn fail_next(&self, fault: Fault) {
        self.memory.fail_next(fault);
    }
}
