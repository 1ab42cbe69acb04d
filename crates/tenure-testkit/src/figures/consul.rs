//! The Consul target of the benchmarks.

use super::{BenchTarget, Work};
use crate::servers::Consul;

/// A single Consul server as the target of a benchmark.
#[derive(Debug)]
pub struct ConsulTarget(pub Consul);

impl ConsulTarget {
    /// Starts a new server, which ends with the target.
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

    /// Limited, because every process reads all seats whenever one of them changes.
    fn most(&self) -> u64 {
        1000
    }

    fn work(&self) -> Option<Work> {
        Some(Work { commands: self.0.asked(), reads: None })
    }
}
