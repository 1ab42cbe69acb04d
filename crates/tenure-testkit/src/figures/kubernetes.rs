//! An API server that figures are taken of.

use std::path::PathBuf;

use super::{BenchTarget, Work};
use crate::servers::Kubernetes;

/// A Kubernetes API server, and a namespace of it.
#[derive(Debug)]
pub struct KubernetesTarget {
    /// The server.
    pub server: Kubernetes,
    kubeconfig: PathBuf,
    namespace: String,
}

impl KubernetesTarget {
    /// A new one.
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

    /// Every renewal is a write of its own.
    fn most(&self) -> u64 {
        200
    }

    /// What was asked about Leases.
    fn work(&self) -> Option<Work> {
        let metrics = self.server.must("GET", "/metrics", "");
        let asked = metrics
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && line.contains("resource=\"leases\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Some(Work { commands: asked.sum::<f64>() as u64, reads: None })
    }
}
