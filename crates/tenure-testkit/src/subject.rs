//! A store under test.

use std::time::Duration;

use tenure_core::{BoxFuture, Builder, DynSeatStore, DynStore, SeatName, SingleSeat};

/// A store under test: how to open connections to it, and what else can be done to it.
///
/// Laws run at the same time on the same data, each with seats of its own; what a hook does must
/// not disturb other seats. A hook that returns `None` cannot be done, and the laws that need it do
/// not apply.
pub trait Subject: Send + Sync + 'static {
    /// Opens another connection to the same data, as another process would have it. Called outside
    /// of any runtime, also just to ask for the promises, so it must not connect yet.
    ///
    /// Dropping it must leave behind what the end of that process would: a session that lapses, or
    /// a lock that is freed.
    fn open(&self) -> Box<dyn DynStore>;

    /// The same, to be asked about one seat at a time. To be given by subjects whose store is a
    /// [`SeatStore`](tenure_core::SeatStore): then that is what the laws ask.
    fn open_seats(&self) -> Box<dyn DynSeatStore> {
        Box::new(SingleSeat::new(self.open()))
    }

    /// The shortest lease to test with (1 s). Shorter makes the tests quicker, but leaves less room
    /// for a busy machine.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// How long to wait for something that must happen before the law counts as broken. Generous,
    /// as only broken laws take that long.
    fn patience(&self) -> Duration {
        self.lease() * 15 + Duration::from_secs(15)
    }

    /// Sets options of every election in the laws, such as `takeover`.
    fn configure(&self, election: Builder) -> Builder {
        election
    }

    /// Removes a seat, as an operator might by mistake.
    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let _ = seat;
        None
    }

    /// Ends the session that this seat is held on, as a server does that was told to.
    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let _ = seat;
        None
    }

    /// Whether a session is over as soon as its connection is dropped, as the lock of a database session is,
    /// rather than a lease after its last heartbeat. What is said about leases then holds for a connection
    /// that stays open and says nothing.
    fn ends_with_its_connection(&self) -> bool {
        false
    }

    /// Whether what the store pushes arrives. Through a connection pooler it may not, which the store notices only once it
    /// is connected: then elections look by themselves, as with a store that pushes nothing.
    fn is_told(&self) -> bool {
        true
    }

    /// A connection on which every call must fail: there is no server, or no permission.
    fn broken(&self) -> Option<Box<dyn DynStore>> {
        None
    }
}
