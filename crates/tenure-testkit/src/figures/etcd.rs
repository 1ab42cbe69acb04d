//! An etcd server that figures are taken of.

use super::{BenchTarget, Work};
use crate::servers::Etcd;

/// An etcd cluster of one member.
#[derive(Debug)]
pub struct EtcdTarget(pub Etcd);

impl EtcdTarget {
    /// A new one.
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

    /// Whatever it was asked: each is a round trip.
    fn work(&self) -> Option<Work> {
        Some(Work { commands: self.0.metric("grpc_server_started_total") as u64, reads: None })
    }
}
