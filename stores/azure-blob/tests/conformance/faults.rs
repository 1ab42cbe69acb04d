//! Faults of the network and the server. By the timestamps of the work, no two leaders overlap.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::DynStore;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::servers::Azurite;

use crate::azurite;
use crate::support::{LEASE, open};

pub(crate) enum Server {
    Shared(Arc<Azurite>),
    Alone(Box<Azurite>),
}

impl Server {
    fn alone(&mut self) -> &mut Azurite {
        match self {
            Self::Shared(_) => panic!("the law did not ask for a server of its own"),
            Self::Alone(azurite) => azurite,
        }
    }
}

impl faults::Server for Server {
    fn start(wish: Wish) -> Self {
        if wish.alone { Self::Alone(Box::new(Azurite::start())) } else { Self::Shared(azurite()) }
    }

    fn address(&self) -> String {
        match self {
            Self::Shared(azurite) => azurite.address(),
            Self::Alone(azurite) => azurite.address(),
        }
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        Box::new(open(&Azurite::url_at(address)))
    }

    /// A process keeps at most four idle connections.
    fn connections(&self, processes: usize) -> usize {
        processes * 4
    }

    fn pause(&mut self) {
        self.alone().pause();
    }

    fn resume(&mut self) {
        self.alone().resume();
    }

    fn restart(&mut self) {
        self.alone().restart();
    }

    /// A container that has lost its blobs has no floor for tokens.
    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.alone().restart_empty();
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn long_lease(&self) -> Duration {
        LEASE * 2
    }

    fn many_candidates(&self) -> usize {
        30
    }

    fn patience(&self) -> Duration {
        LEASE * 10
    }

    /// Renewals do not write the record.
    fn renewals(&self) -> &'static [&'static str] {
        &["x-ms-lease-action: renew"]
    }
}
