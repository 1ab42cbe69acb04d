//! The Kubernetes target of the benchmarks.

use std::path::PathBuf;

use super::{BenchTarget, Work};
use crate::servers::Kubernetes;

/// A Kubernetes API server, with a namespace of its own, as the target of a benchmark.
#[derive(Debug)]
pub struct KubernetesTarget {
    /// The API server that the store uses, which a benchmark can pause or kill.
    pub server: Kubernetes,
    kubeconfig: PathBuf,
    namespace: String,
}

impl KubernetesTarget {
    /// Starts a new server, which ends with the target.
    pub fn start() -> Self {
        let server = Kubernetes::start();
        let namespace = server.namespace();
        Self { kubeconfig: server.kubeconfig(&namespace), server, namespace }
    }
}

impl BenchTarget for KubernetesTarget {
    fn name(&self) -> String {
        "kubernetes".to_owned()
    }

    fn url(&self) -> String {
        format!("kubernetes:?kubeconfig={}", self.kubeconfig.display())
    }

    fn address(&self) -> Option<String> {
        Some(self.server.address())
    }

    fn url_at(&self, address: &str) -> String {
        let through = self.server.kubeconfig_by(&self.namespace, &format!("https://{address}"));
        format!("kubernetes:?kubeconfig={}", through.display())
    }

    /// Limited, because every renewal is a separate write.
    fn most(&self) -> u64 {
        200
    }

    /// Counts the requests about Lease objects.
    fn work(&self) -> Option<Work> {
        let metrics = self.server.must("GET", "/metrics", "");
        let asked = metrics
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && line.contains("resource=\"leases\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Some(Work { commands: asked.sum::<f64>() as u64, reads: None })
    }
}
