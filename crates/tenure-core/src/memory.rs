//! A store in the memory of this process: for trying things out, and for tests.
//!
//! It comes in each of the kinds that stores come in, so that what holds on real servers can be
//! shown here first. Records are kept in the same JSON form as everywhere.

mod store;
mod world;

use std::sync::Arc;

pub use self::store::MemoryStore;
use self::world::{Failure, World};
use crate::{Candidate, Clock, Fault, Identity, Incarnation, LifeKind, Record, SeatName, Token};

/// A memory that several candidates share, each over a connection of its own, and the means to
/// make things go wrong in it. Clones are the same memory.
///
/// ```
/// # use tenure_core::memory::Memory;
/// # use tenure_core::Elections;
/// let memory = Memory::new();
/// let one = Elections::new(memory.store());
/// let another = Elections::new(memory.store());   // as if from another process
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<World>);

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// A memory that tells by its clock when a seat has lapsed.
    pub fn new() -> Self {
        Self::of_kind(LifeKind::Clock, Clock::system())
    }

    /// A memory that tells in this way that a holder is gone, on this clock.
    pub fn of_kind(kind: LifeKind, clock: impl Into<Clock>) -> Self {
        Self(Arc::new(World::new(kind, clock.into())))
    }

    /// Another connection, as if from another process: a session of its own, where there are any.
    pub fn store(&self) -> MemoryStore {
        MemoryStore::connect(self.0.clone())
    }

    /// Has another candidate take the seat, with the next token, and returns that. Whoever held it
    /// finds out as it would from a real store.
    ///
    /// # Panics
    /// If the name cannot be used.
    pub fn usurp(&self, name: &str) -> Token {
        let usurper = Candidate { id: "usurper".into(), incarnation: Incarnation::from_bits(rand::random()) };
        self.0.rewrite(&seat(name), |record| Record {
            holder: Some(usurper.clone()),
            token: record.token.next().unwrap_or(Token::MAX),
            ..record
        })
    }

    /// Makes the lease on the seat lapse at once: the holder loses it, and anybody may take it.
    ///
    /// # Panics
    /// If the name cannot be used.
    pub fn expire(&self, name: &str) {
        self.0.rewrite(&seat(name), |record| Record { holder: None, ..record });
    }

    /// Has the next call of any connection fail in this way, without effect.
    pub fn fail_next(&self, fault: Fault) {
        self.0.fail_next(Failure::Fault(fault));
    }

    /// Has the next call of any connection take effect, but its answer get lost.
    pub fn lose_next_answer(&self) {
        self.0.fail_next(Failure::AnswerLost);
    }

    /// Has the next call of any connection hang until it is given up, without effect.
    pub fn hang_next(&self) {
        self.0.fail_next(Failure::Hang);
    }

    /// Ends all sessions (`LifeKind::Session`), as a server does that was told to.
    pub fn end_sessions(&self) {
        self.0.end_sessions();
    }

    /// Ends the session that this seat is held on, and with it everything else held on it.
    ///
    /// # Panics
    /// If the name cannot be used.
    pub fn end_session(&self, name: &str) {
        self.0.end_session(&seat(name));
    }

    /// Removes a seat, as an operator might by mistake.
    ///
    /// # Panics
    /// If the name cannot be used.
    pub fn delete(&self, name: &str) {
        self.0.delete(&seat(name));
    }

    /// Moves the store's clock (`LifeKind::Clock`) against everybody else's.
    pub fn step_clock(&self, nanos: i64) {
        self.0.step_clock(nanos);
    }

    /// Gives the store another identity, as a restarted server has, and the data that it had.
    pub fn change_identity(&self, identity: &str) {
        self.0.change_identity(Identity::new(identity));
    }

    /// How many reads and writes have been made.
    pub fn calls(&self) -> Calls {
        self.0.calls()
    }
}

/// How many calls were made to a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Reads of a seat.
    pub reads: u64,
    /// Conditional writes of a seat, other than renewals.
    pub swaps: u64,
    /// Renewals.
    pub renewals: u64,
}

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap_or_else(|error| panic!("{error}"))
}
