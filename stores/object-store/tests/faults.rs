//! Faults of the network and the server: the laws about faults, on a stand-in for S3 that keeps its objects over a restart.
//! By the timestamps of the work, no two leaders overlap.

mod support;

use std::time::Duration;

use support::open;
use tenure_core::DynStore;
use tenure_testkit::Kit;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::S3;

fn main() {
    Kit::new().concurrently(6).faults::<Server>().run();
}

struct Server {
    s3: S3,
    /// The stand-in keeps its end of a connection open that was closed without a request. So the connections of a store are
    /// counted in front of it.
    relay: Proxy,
}

impl faults::Server for Server {
    fn start(_: Wish) -> Self {
        let s3 = S3::start();
        Self { relay: Proxy::start(s3.address()), s3 }
    }

    fn address(&self) -> String {
        self.relay.address().to_string()
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        Box::new(open(&S3::url_at(address)))
    }

    /// A process keeps at most four idle connections.
    fn connections(&self, processes: usize) -> usize {
        processes * 4
    }

    fn pause(&mut self) {
        self.s3.pause();
    }

    fn resume(&mut self) {
        self.s3.resume();
    }

    fn restart(&mut self) {
        self.s3.restart();
    }

    /// A bucket that has lost its objects has no floor for tokens.
    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.s3.restart_empty();
    }

    /// The stand-in is slow: all candidates share one interpreter.
    fn many_candidates(&self) -> usize {
        30
    }

    /// Long enough for the stand-in to start again on a busy machine.
    fn lease(&self) -> Duration {
        Duration::from_secs(4)
    }
}
