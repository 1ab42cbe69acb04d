//! The laws about faults of the network and the server, over the scripted peer.

mod peer;
#[allow(dead_code, reason = "only the bytes of the batches")]
mod real;

use std::time::Duration;

use peer::{Peer, url_at};
use tenure_core::{Builder, DynStore, Takeover};
use tenure_sqlserver::{Mode, SqlServerStore};
use tenure_testkit::faults::{self, AfterLoss, Wish};

/// A peer, with candidates in session mode or in lease mode.
struct Database<const SESSIONS: bool>(Peer);

impl<const SESSIONS: bool> faults::Server for Database<SESSIONS> {
    fn start(_: Wish) -> Self {
        Self(Peer::start())
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        let mode = if SESSIONS { "session" } else { "lease" };
        Box::new(SqlServerStore::from_url(&format!("{}&mode={mode}", url_at(address))).unwrap())
    }

    /// As in the README: in session mode a leader has one connection, and a follower two.
    fn connections(&self, processes: usize) -> usize {
        if SESSIONS { 1 + 2 * (processes - 1) } else { processes }
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn pause(&mut self) {
        self.0.pause();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn restart(&mut self) {
        self.0.restart();
    }

    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.0.restart_empty();
    }

    /// With `takeover=instant` two leaders may overlap until the old one notices that its session ended, as the
    /// promises say.
    fn configure(&self, election: Builder) -> Builder {
        election.takeover(Takeover::Safe)
    }

    fn ends_with_its_connection(&self) -> bool {
        SESSIONS
    }

    fn bid(&self) -> &'static str {
        real::BID
    }

    fn renewals(&self) -> &'static [&'static str] {
        real::renewals(if SESSIONS { Mode::Session } else { Mode::Lease })
    }
}

mod lease {
    tenure_testkit::faults!(super::Database<false>);
}

mod session {
    tenure_testkit::faults!(super::Database<true>);
}
