//! A Consul server that figures are taken of.

use super::{BenchTarget, Work};
use crate::servers::Consul;

/// One Consul server.
#[derive(Debug)]
pub struct ConsulTarget(pub Consul);

impl ConsulTarget {
    /// A new one.
    pub fn start() -> Self {
        Self(Consul::start())
    }
}

impl BenchTarget for ConsulTarget {
    fn name(&self) -> String {
        "consul".to_owned()
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn address(&self) -> Option<String> {
        Some(self.0.address())
    }

    /// Every process reads all seats whenever one has changed: with more, that is all it does.
    fn most(&self) -> u64 {
        1000
    }

    fn work(&self) -> Option<Work> {
        Some(Work { commands: self.0.asked(), reads: None })
    }
}
