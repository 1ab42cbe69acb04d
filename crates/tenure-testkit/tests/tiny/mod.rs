//! A tiny server, and a store that talks to it in lines of text over TCP. The laws about faults hold on them, and
//! each law fails on a store or server with a flaw.

mod server;
mod store;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::DynStore;
use tenure_testkit::faults::{AfterLoss, Server, Wish};

use self::server::Tiny;
use self::store::TinyStore;

/// A flaw of a store or its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The store answers renewals without the server.
    AnswersRenewalsItself,
    /// The store returns the last state that it read or wrote, not the state of the server.
    ReadsFromItsCache,
    /// The store joins the rest of a cut reply with the next reply on another connection.
    KeepsHalfAReply,
    /// The store uses a broken connection forever.
    NeverReconnects,
    /// A watch waits forever on a broken connection.
    WatchesABrokenConnection,
    /// The store promises to detect lost notifications, and does not.
    PromisesProvenPush,
    /// The store keeps connections that it has abandoned.
    KeepsAbandonedConnections,
    /// The store reports a renewal without an early answer as successful.
    TreatsSilenceAsSuccess,
    /// The store expects whatever version the seat has when it writes.
    WritesWithoutACondition,
    /// The server loses data that it has confirmed.
    ForgetsWhenRestarted,
    /// The server loses the floor of tokens together with its data.
    HasNoFloor,
}

/// A tiny server, with or without a flaw.
pub(crate) struct TinyServer {
    server: Tiny,
    flaw: Option<Flaw>,
}

impl TinyServer {
    pub(crate) fn with(flaw: Option<Flaw>) -> Self {
        Self { server: Tiny::start(flaw != Some(Flaw::HasNoFloor)), flaw }
    }
}

impl Server for TinyServer {
    fn start(_: Wish) -> Self {
        Self::with(None)
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        Box::new(TinyStore::new(address, self.flaw))
    }

    /// One connection for calls, and one for the watch.
    fn connections(&self, processes: usize) -> usize {
        2 * processes
    }

    fn pause(&mut self) {
        self.server.pause(true);
    }

    fn resume(&mut self) {
        self.server.pause(false);
    }

    fn restart(&mut self) {
        self.server.restart(self.flaw == Some(Flaw::ForgetsWhenRestarted));
    }

    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::AllTokensRise)
    }

    fn restart_empty(&mut self) {
        self.server.restart(true);
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Short for a server with a flaw, because its law is expected to fail.
    fn patience(&self) -> Duration {
        Duration::from_secs(if self.flaw.is_some() { 10 } else { 60 })
    }
}

/// State that the threads of the server and the test share.
type Shared<T> = Arc<std::sync::Mutex<T>>;
