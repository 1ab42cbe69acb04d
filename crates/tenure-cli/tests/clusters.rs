//! All commands over etcd, Consul and Kubernetes.

#![cfg(target_os = "linux")]

mod common;

use common::all_commands::all_commands_work_over;
use tenure_testkit::servers::{Consul, Etcd, Kubernetes};

#[test]
fn all_commands_work_over_etcd() {
    let etcd = Etcd::start();
    all_commands_work_over(&etcd.url());
}

#[test]
fn all_commands_work_over_consul() {
    let consul = Consul::start();
    all_commands_work_over(&consul.url());
}

#[test]
fn all_commands_work_over_kubernetes() {
    let server = Kubernetes::start();
    let kubeconfig = server.kubeconfig(&server.namespace());
    all_commands_work_over(&format!("kubernetes:?kubeconfig={}", kubeconfig.display()));
}
