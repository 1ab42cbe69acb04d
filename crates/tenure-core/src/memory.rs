//! A store in the memory of this process, for tests and first steps.
//!
//! It simulates each kind of store ([`LifeKind`]), so that a test can show here what holds for real servers. Records
//! have the same JSON form as in all stores.

mod store;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub use self::store::MemoryStore;
use self::world::{InjectedFailure, World};
use crate::{Candidate, Clock, DataIdentity, Fault, Incarnation, LifeKind, Record, SeatName, Token};

/// A memory that simulates a server: several stores connect to it, and tests make it fail.
///
/// Each [`store()`](Self::store) is a separate connection, as if from another process. Clones of a `Memory` are the
/// same memory. `tenure::testing::Stage` combines a `Memory` with a clock that is moved by hand.
///
/// ```
/// use tenure_core::{Elections, memory::Memory};
///
/// let memory = Memory::new();
/// let one = Elections::new(memory.store());
/// let other = Elections::new(memory.store()); // as if from another process
/// let a = one.election("jobs").start()?;
/// a.elected_blocking()?;
/// let b = other.election("jobs").start()?;
/// assert!(a.is_leader() && !b.is_leader());
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<World>);

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Creates a memory on the system clock that expires seats by its clock, as Redis does.
    pub fn new() -> Self {
        Self::of_kind(LifeKind::Clock, Clock::system())
    }

    /// Creates a memory of the given kind on the given clock. The kind says how the store detects that a holder is
    /// gone.
    ///
    /// ```
    /// # use tenure_core::{LifeKind, ManualClock, memory::Memory};
    /// let clock = ManualClock::new();
    /// let memory = Memory::of_kind(LifeKind::Session, clock.clone());
    /// # let _ = memory;
    /// ```
    pub fn of_kind(kind: LifeKind, clock: impl Into<Clock>) -> Self {
        Self(Arc::new(World::new(kind, clock.into())))
    }

    /// Returns the memory of this process with this name and kind. All calls with the same arguments return the same
    /// memory, which lives as long as the process. `tenure::connect("memory:NAME")` uses it.
    pub fn named(name: &str, kind: LifeKind) -> Self {
        static NAMED: Mutex<BTreeMap<(String, LifeKind), Memory>> = Mutex::new(BTreeMap::new());
        let mut named = NAMED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        named.entry((name.to_owned(), kind)).or_insert_with(|| Self::of_kind(kind, Clock::system())).clone()
    }

    /// Connects a store to this memory, as if from another process, with a separate session where the kind has
    /// sessions.
    pub fn store(&self) -> MemoryStore {
        MemoryStore::connect(self.0.clone())
    }

    /// Gives the seat to another candidate, with the next token, and returns that token. The former holder finds out
    /// as it would with a real store.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::{Elections, LifeKind, ManualClock, memory::Memory};
    /// # let clock = ManualClock::new();
    /// # let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    /// # let elections = Elections::with_clock(memory.store(), clock.clone());
    /// # let election = elections.election("jobs").start()?;
    /// # clock.settle();
    /// memory.usurp("jobs");
    /// clock.settle();
    /// assert!(!election.is_leader());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the name is not a valid name of an election.
    pub fn usurp(&self, name: &str) -> Token {
        let usurper = Candidate { id: "usurper".into(), incarnation: Incarnation::from_bits(rand::random()) };
        self.0.rewrite(&seat(name), |record| Record {
            holder: Some(usurper.clone()),
            token: record.token.next().unwrap_or(Token::MAX),
            ..record
        })
    }

    /// Vacates the seat at once, as if its lease had expired: the holder loses it, and any candidate can take it.
    ///
    /// # Panics
    /// If the name is not a valid name of an election.
    pub fn expire(&self, name: &str) {
        self.0.rewrite(&seat(name), |record| Record { holder: None, ..record });
    }

    /// Makes the next call of any connection fail with this fault, without effect.
    ///
    /// ```
    /// # use tenure_core::{Fault, memory::Memory};
    /// # let memory = Memory::new();
    /// memory.fail_next(Fault::Refused);
    /// memory.fail_next(Fault::Refused); // and the call after it
    /// ```
    pub fn fail_next(&self, fault: Fault) {
        self.0.fail_next(InjectedFailure::Fault(fault));
    }

    /// Makes the next call of any connection take effect but fail with [`Fault::Unknown`], as if its answer were lost.
    pub fn lose_next_answer(&self) {
        self.0.fail_next(InjectedFailure::AnswerLost);
    }

    /// Makes the next call of any connection hang until its caller gives up, without effect.
    pub fn hang_next(&self) {
        self.0.fail_next(InjectedFailure::Hang);
    }

    /// Ends all sessions ([`LifeKind::Session`]), as an administrator can do on a server.
    pub fn end_sessions(&self) {
        self.0.end_sessions();
    }

    /// Ends the session that holds this seat, and so frees all seats that the session holds.
    ///
    /// # Panics
    /// If the name is not a valid name of an election.
    pub fn end_session(&self, name: &str) {
        self.0.end_session(&seat(name));
    }

    /// Removes the record of a seat, as an operator can do by mistake. The token floor stays.
    ///
    /// # Panics
    /// If the name is not a valid name of an election.
    pub fn delete(&self, name: &str) {
        self.0.delete(&seat(name));
    }

    /// Moves the store's clock ([`LifeKind::Clock`]) by this many nanoseconds against the clock of the candidates.
    pub fn step_clock(&self, nanos: i64) {
        self.0.step_clock(nanos);
    }

    /// Changes the identity of the store, as a restarted server does, and keeps its data.
    pub fn change_identity(&self, identity: &str) {
        self.0.change_identity(DataIdentity::new(identity));
    }

    /// Returns the number of reads and writes that all connections have made.
    pub fn calls(&self) -> Calls {
        self.0.calls()
    }
}

/// The number of calls that were made to a [`Memory`], by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads of a seat, by candidates and observers alike.
    pub reads: u64,
    /// Conditional writes of a seat, other than renewals.
    pub swaps: u64,
    /// Renewals of a seat by its leader, whether they succeeded or not.
    pub renewals: u64,
}

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap_or_else(|error| panic!("{error}"))
}
