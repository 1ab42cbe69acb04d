//! The command over etcd, Consul and Kubernetes: whatever the store, it says and does the same.

#![cfg(target_os = "linux")]

mod common;

use common::everything::everything_can_be_done_over;
use tenure_testkit::servers::{Consul, Etcd, Kubernetes};

#[test]
fn everything_can_be_done_over_etcd() {
    let etcd = Etcd::start();
    everything_can_be_done_over(&etcd.url());
}

#[test]
fn everything_can_be_done_over_consul() {
    let consul = Consul::start();
    everything_can_be_done_over(&consul.url());
}

#[test]
fn everything_can_be_done_over_kubernetes() {
    let server = Kubernetes::start();
    let kubeconfig = server.kubeconfig(&server.namespace());
    everything_can_be_done_over(&format!("kubernetes:?kubeconfig={}", kubeconfig.display()));
}
