//! The etcd target of the benchmarks.

use super::{BenchTarget, Work};
use crate::servers::Etcd;

/// An etcd cluster of one member as the target of a benchmark.
#[derive(Debug)]
pub struct EtcdTarget(pub Etcd);

impl EtcdTarget {
    /// Starts a new server, which ends with the target.
    pub fn start() -> Self {
        Self(Etcd::start())
    }
}

impl BenchTarget for EtcdTarget {
    fn name(&self) -> String {
        "etcd".to_owned()
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn address(&self) -> Option<String> {
        Some(self.0.addresses())
    }

    /// Counts all calls to the server. Each is a round trip.
    fn work(&self) -> Option<Work> {
        Some(Work { commands: self.0.metric("grpc_server_started_total") as u64, reads: None })
    }
}
