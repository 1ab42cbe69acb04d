//! All commands over etcd, Consul and Kubernetes.

#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::all_commands::all_commands_work_over;
use common::{Running, World};
use serde_json::Value;
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

#[test]
fn an_api_server_accepts_the_deployment_and_its_command_leads() {
    let server = Kubernetes::start();
    let namespace = server.namespace();
    let deployment = include_str!("../../../deploy/kubernetes/deployment.yaml");
    let deployment: Value = serde_saphyr::from_str(deployment).unwrap();
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments?fieldValidation=Strict");
    server.must("POST", &path, &deployment.to_string());

    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["value"], "kubernetes:");
    let words = ["command", "args"].map(|part| container[part].as_array().unwrap().clone()).concat();
    let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words[0], "tenure");
    let kubeconfig = server.kubeconfig(&namespace);
    let world = World::on(&format!("kubernetes:?kubeconfig={}", kubeconfig.display()));
    let mut tenure = world.tenure(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(tenure.stdout.take().unwrap()).lines();
    let _running = Running { child: tenure };
    assert!(lines.next().unwrap().unwrap().starts_with("working in term "));
}
