//! The description of a store under test.

use std::time::Duration;

use tenure_core::{BoxFuture, Builder, DynSeatStore, DynStore, SeatName, SingleSeat};

/// A store under test: opens connections to it, and does to it what a test needs.
///
/// Laws run concurrently on the same data, each with seats of its own, so a method must not affect other seats. A
/// method that returns `None` is not supported, and the laws that need it do not apply.
pub trait Subject: Send + Sync + 'static {
    /// Opens another connection to the same data, as another process would. It must not connect yet: the laws call it
    /// outside of any runtime, also only to read the promises.
    ///
    /// Dropping the connection must have the same effect as the end of its process: a session that expires, or a lock
    /// that is freed.
    fn open(&self) -> Box<dyn DynStore>;

    /// Opens another connection for calls about one seat at a time. Implement this if the store is a
    /// [`SeatStore`](tenure_core::SeatStore): then the laws call the store itself, without an adapter.
    fn open_seats(&self) -> Box<dyn DynSeatStore> {
        Box::new(SingleSeat::new(self.open()))
    }

    /// Returns the lease of the tests (default: 1 s). A shorter lease makes the tests faster, but leaves a busy machine
    /// less time.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Returns how long a law waits for an event that must happen, before it counts as broken. It can be long, because
    /// only broken laws wait that long.
    fn patience(&self) -> Duration {
        self.lease() * 15 + Duration::from_secs(15)
    }

    /// Sets options of every election in the laws, such as `takeover`. The default changes nothing.
    fn configure(&self, election: Builder) -> Builder {
        election
    }

    /// Deletes a seat directly in the store's data, as an operator might by mistake.
    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let _ = seat;
        None
    }

    /// Ends the session that holds this seat, as an operator can on the server.
    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let _ = seat;
        None
    }

    /// Returns whether a session ends as soon as its connection is dropped, like the lock of a database session, and
    /// not a lease after its last heartbeat. The laws then test leases with a connection that stays open and silent.
    fn ends_with_its_connection(&self) -> bool {
        false
    }

    /// Returns whether the store's notifications arrive. Through a connection pooler they may not, which the store
    /// notices only after it has connected. Elections then poll, as with a store without push.
    fn is_told(&self) -> bool {
        true
    }

    /// Returns whether the store pushes the seat itself when its term is released ([`News::released`]), so that the next
    /// leader bids without reading it. The law then fails if the store pushes less.
    ///
    /// [`News::released`]: tenure_core::News::released
    fn pushes_releases(&self) -> bool {
        false
    }

    /// Returns whether the store keeps the last token of a seat that was removed with `forget` where the next write can
    /// compare with it. If it keeps none, as its floor is a revision or a clock, its promises must name what follows from
    /// that: a bid from before the removal can repeat a token.
    fn keeps_tokens_of_removed_seats(&self) -> bool {
        true
    }

    /// Opens a connection to another scope of the same server: another prefix, schema, namespace or file, which has
    /// seats of its own.
    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        None
    }

    /// Opens a connection on which every call must fail, because there is no server or no permission.
    fn broken(&self) -> Option<Box<dyn DynStore>> {
        None
    }
}
