//! The command over etcd, Consul and Kubernetes, from the first candidate to the last: whatever the store, it says and
//! does the same.

#![cfg(target_os = "linux")]

mod common;

use common::{World, candidates, json_of, stand, text};
use rustix::process::Signal;
use tenure_testkit::servers::{Consul, Etcd, Kubernetes};

#[test]
fn over_etcd_the_leader_hands_over_is_killed_and_leaves() {
    let etcd = Etcd::start();
    from_the_first_to_the_last(&etcd.url());
}

#[test]
fn over_consul_the_leader_hands_over_is_killed_and_leaves() {
    let consul = Consul::start();
    from_the_first_to_the_last(&consul.url());
}

#[test]
fn over_kubernetes_the_leader_hands_over_is_killed_and_leaves() {
    let server = Kubernetes::start();
    let kubeconfig = server.kubeconfig(&server.namespace());
    from_the_first_to_the_last(&format!("kubernetes:?kubeconfig={}", kubeconfig.display()));
}

/// Every start is alone, and above the last: [`World::start_number`] sees to that.
fn from_the_first_to_the_last(url: &str) {
    let world = World::on(url);
    assert_eq!(world.output(&["status", "jobs"]).status.code(), Some(1), "nobody has led yet");
    let mut alice = stand(&world, "alice", &["--lease", "3s"]);
    let first = world.start_number(1);
    let bob = stand(&world, "bob", &["--lease", "3s"]);
    world.eventually("both to be listed", || candidates(&world).len() == 2);
    let status = json_of(&world.output(&["status", "--json", "jobs"]));
    let leader = (&status["leader"]["candidate"], &status["leader"]["token"]);
    assert_eq!(leader, (&"alice".into(), &first.token.into()), "{status}");

    let asked = world.output(&["step-down", "jobs", "--to", "bob"]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked.stderr));
    assert_eq!(world.start_number(2).candidate, "bob");

    bob.signal(Signal::KILL);
    assert_eq!(world.start_number(3).candidate, "alice");

    alice.signal(Signal::TERM);
    alice.wait(&world);
    assert_eq!(world.output(&["status", "jobs"]).status.code(), Some(1), "it was left free");
    let forgotten = world.output(&["forget", "jobs"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    let mut carol = stand(&world, "carol", &["--lease", "3s"]);
    assert_eq!(world.start_number(4).candidate, "carol");
    carol.signal(Signal::TERM);
    carol.wait(&world);
    world.eventually_empty();
}
