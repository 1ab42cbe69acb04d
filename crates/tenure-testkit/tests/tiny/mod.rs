//! A tiny server of its own, and a store that talks to it by lines of text over TCP: the laws about faults hold on it,
//! and each fails on a store or server with a flaw.

mod server;
mod store;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::DynStore;
use tenure_testkit::faults::{AfterLoss, Server, Wish};

use self::server::Tiny;
use self::store::TinyStore;

/// What is wrong with a store or its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Renewals are answered without the server.
    KeepsByItself,
    /// Readings are what was read and confirmed last, not what the server has.
    ReadsWhatItLastHeard,
    /// What is left of a reply that was cut is put before the next one, on another connection.
    KeepsHalfAReply,
    /// A connection that broke is used for ever.
    NeverConnectsAgain,
    /// A watch whose connection broke waits for ever.
    WatchesABrokenConnection,
    /// Connections that were given up are kept.
    KeepsWhatItGaveUp,
    /// A renewal that is not answered soon is told as done.
    TakesSilenceForAYes,
    /// The server forgets what it has confirmed.
    ForgetsWhenRestarted,
    /// The floor of tokens is lost with the data.
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

    /// One for calls, and one for the watch.
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

    /// Short where laws are to fail.
    fn patience(&self) -> Duration {
        Duration::from_secs(if self.flaw.is_some() { 10 } else { 60 })
    }
}

/// Shared between the threads of the server and the test.
type Shared<T> = Arc<std::sync::Mutex<T>>;
