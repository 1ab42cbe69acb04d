//! The memory store as a subject.

use std::time::Duration;

use tenure_core::memory::Memory;
use tenure_core::{BoxFuture, Builder, Clock, DynSeatStore, DynStore, LifeKind, SeatName, Takeover};

use crate::Subject;
use crate::wrap::{Cuttable, Traffic};

/// The memory store as a subject: of one [`LifeKind`], and with support for every law.
#[derive(Clone, Debug)]
pub struct MemorySubject {
    memory: Memory,
    takeover: Option<Takeover>,
    patience: Option<Duration>,
}

impl MemorySubject {
    /// Creates a subject with an empty memory store of this kind.
    pub fn new(kind: LifeKind) -> Self {
        Self { memory: Memory::of_kind(kind, Clock::system()), takeover: None, patience: None }
    }

    /// Sets the `takeover` option of all elections in the laws.
    #[must_use]
    pub fn takeover(mut self, takeover: Takeover) -> Self {
        self.takeover = Some(takeover);
        self
    }

    /// Sets how long a law waits. Use a short time where laws are expected to fail.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Returns the data of the store, which a test can read and change directly.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Subject for MemorySubject {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(self.memory.store())
    }

    fn patience(&self) -> Duration {
        self.patience.unwrap_or(self.lease() * 15 + Duration::from_secs(15))
    }

    fn configure(&self, election: Builder) -> Builder {
        match self.takeover {
            Some(takeover) => election.takeover(takeover),
            None => election,
        }
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async { self.memory.delete(seat.as_str()) }))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async { self.memory.end_session(seat.as_str()) }))
    }

    fn open_seats(&self) -> Box<dyn DynSeatStore> {
        Box::new(self.memory.store())
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let (store, wire) = Cuttable::new(self.memory.store());
        wire.set(Traffic::Refuse);
        Some(Box::new(store))
    }
}
