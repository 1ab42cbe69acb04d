//! Faults of a network and a cluster: the laws about them, and cases that are special to Kubernetes. Every test
//! ends by checking that no two candidates ever worked at once, by comparing the moments of their work.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::gate::Gate;
use support::{acted_above, seats, stand, until, url, within};
use tenure_core::{EndReason, Token};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::faults::{self, Wish};
use tenure_testkit::servers::{Kubernetes, connections};
use tokio::runtime::Runtime;

/// A fifteenth of it must be enough for a call on a busy machine.
const LEASE: Duration = Duration::from_secs(3);

/// A candidate has one connection for its watch, and one for each call that it has ever had in flight at the same
/// time.
const CONNECTIONS: usize = 6;

const ALL: &[&str] = &["create", "update", "delete", "list", "watch"];

/// A namespace of a server, which the laws reach over TLS or through a gate.
struct Cluster {
    server: Arc<Kubernetes>,
    namespace: String,
    gate: Option<Gate>,
    /// The runtime of the gate.
    runtime: Option<Runtime>,
}

impl Cluster {
    fn alone(&mut self) -> &mut Kubernetes {
        Arc::get_mut(&mut self.server).expect("a server that is stopped or restarted is not shared")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.gate = None;
        // A runtime must not be waited for here, because this is dropped in an async context.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl faults::Server for Cluster {
    fn start(wish: Wish) -> Self {
        let server = if wish.alone { Arc::new(Kubernetes::start()) } else { Kubernetes::shared() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let gate = wish.plain.then(|| runtime.block_on(Gate::before(&server)));
        Self { namespace: server.namespace(), server, gate, runtime: Some(runtime) }
    }

    fn address(&self) -> String {
        self.gate.as_ref().map_or_else(|| self.server.address(), |gate| gate.address().to_string())
    }

    fn open(&self, address: &str) -> Box<dyn tenure_core::DynStore> {
        let scheme = if self.gate.is_some() { "http" } else { "https" };
        let kubeconfig = self.server.kubeconfig_by(&self.namespace, &format!("{scheme}://{address}"));
        Box::new(KubernetesStore::from_url(&url(kubeconfig)).unwrap())
    }

    fn connections(&self, processes: usize) -> usize {
        CONNECTIONS * processes
    }

    fn pause(&mut self) {
        self.alone().api.pause();
    }

    fn resume(&mut self) {
        self.alone().api.resume();
    }

    fn restart(&mut self) {
        self.alone().api.kill();
        self.alone().start_again();
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    /// The server takes a while to restart.
    fn long_lease(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// The record is in an annotation, as JSON inside a JSON string.
    fn bid(&self) -> &'static str {
        r#"\"token\":"#
    }

    fn renewals(&self) -> &'static [&'static str] {
        &[r#"\"token\":"#]
    }
}

mod laws {
    tenure_testkit::faults!(super::Cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_watch_is_detected_and_replaced() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", gate.address()));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", LEASE, &detector);
    other.knows(first).await;
    until("the follower watches", || gate.count("GET", "watch=1") >= 1).await;
    gate.mute(true);
    until("the follower watches again", || gate.count("GET", "watch=1") >= 3).await;
    gate.mute(false);
    assert_eq!(detector.work_spans(), 1, "the term was lost");
    one.election.stop();
    other.leads().await;
    few_connections(&gate.address()).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_falls_silent_is_noticed_before_the_next_read() {
    let lease = Duration::from_secs(18);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", gate.address()));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", lease, &detector);
    other.knows(first).await;
    until("the follower watches", || gate.count("GET", "watch=1") >= 1).await;
    gate.mute(true);
    one.election.stop();
    one.stopped().await;
    // A renewal, and half as much again for a busy machine.
    let leads = tokio::time::timeout(lease / 2, other.leads()).await;
    assert!(leads.is_ok(), "the follower relied on a watch that had fallen silent");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_revision_has_expired_starts_over_with_a_list() {
    let lease = Duration::from_secs(60);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", gate.address()));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", lease, &detector);
    other.knows(first).await;
    until("the follower watches", || gate.count("GET", "watch=1") >= 1).await;
    // Twice, as from a server that has compacted its history (410 Gone).
    for _ in 0..2 {
        let (all, watches) = (gate.count("GET", "labelSelector="), gate.count("GET", "watch=1"));
        gate.send_to_watches(
            r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}}"#,
        );
        until("the follower watches again", || gate.count("GET", "watch=1") > watches).await;
        let lists = gate.count("GET", "labelSelector=") - all - (gate.count("GET", "watch=1") - watches);
        assert!(lists >= 1, "the follower did not list the seats again");
    }
    let began = Instant::now();
    one.election.stop();
    other.leads().await;
    assert!(began.elapsed() < lease / 3, "the follower was not notified");
    few_connections(&gate.address()).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revoked_in_mid_term_is_reported_and_another_candidate_takes_over() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let token = server.service_account(&namespace, "jobs", ALL);
    let kubeconfig = server.kubeconfig_of(&token, &namespace, &format!("https://{}", server.address()));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(&kubeconfig), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(server.kubeconfig(&namespace)), "other", LEASE, &detector);
    other.knows(first).await;
    server.revoke(&namespace, "jobs");
    let (error, lost) = one.is_denied_and_loses().await;
    assert!(error.contains("rejected the credentials (401)") && !error.contains(&token), "{error}");
    assert_eq!(lost, first);
    let second = acted_above(&detector, first).await;
    // With another token in the same file, the candidate can write again, and leads once the other has left.
    std::fs::copy(server.kubeconfig(&namespace), &kubeconfig).unwrap();
    other.election.stop();
    one.recovers().await;
    assert!(one.leads().await > second);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_operator_deletes_a_seat_candidates_wait_and_tokens_keep_rising() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", LEASE, &detector);
    let mut first = one.leads().await;
    let mut other = stand(&url(server.kubeconfig(&namespace)), "other", LEASE, &detector);
    other.knows(first).await;
    for _ in 0..2 {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
        server.must("DELETE", &path, "");
        let second = acted_above(&detector, first).await;
        assert!(second > first);
        first = second;
    }
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_seat_is_deleted_or_edited_by_hand_stops_at_once() {
    // So long that no renewal is due during the test.
    let lease = Duration::from_secs(240);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let renewals = one.counter.counts().renewals;
    server.must("DELETE", &path, "");
    assert_eq!(one.loses().await, (first, EndReason::SeatVanished));
    assert_eq!(one.counter.counts().renewals, renewals, "the leader waited for its next renewal");
    one.election.stop();
    within("the election stops", one.election.stopped()).await;

    // A candidate that has never seen the seat still gets a higher token.
    let mut fresh = stand(&url(server.kubeconfig(&namespace)), "fresh", lease, &detector);
    let second = fresh.leads().await;
    assert!(second > first, "{second} after {first}");
    let renewals = fresh.counter.counts().renewals;
    let mut edited: serde_json::Value = serde_json::from_str(&server.must("GET", &path, "")).unwrap();
    edited["spec"]["holderIdentity"] = "somebody".into();
    server.must("PUT", &path, &edited.to_string());
    assert_eq!(fresh.loses().await.0, second);
    assert_eq!(fresh.counter.counts().renewals, renewals, "the leader waited for its next renewal");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_recreate_a_deleted_seat() {
    use tenure_core::{Record, SeatName, SeatStore, Swap};
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let store = seats(&url(server.kubeconfig(&namespace)));
    let seat = SeatName::new("jobs").unwrap();
    let holder = tenure_core::Candidate { id: "me".into(), incarnation: tenure_core::Incarnation::from_bits(7) };
    let record = |nonce| Record {
        holder: Some(holder.clone()),
        token: Token::new(1),
        lease: LEASE,
        since_ms: None,
        heir: None,
        priority: 0,
        ranked: false,
        metadata: Default::default(),
        nonce,
        claim: None,
        crash: None,
        unknown: Default::default(),
    };
    let Swap::Done { version, .. } = store.swap(&seat, None, &record(1)).await.unwrap() else { panic!("lost") };
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
    server.must("DELETE", &path, "");
    assert_eq!(store.renew(&seat, &version, &record(2)).await.unwrap(), Swap::Lost);
    assert_eq!(server.ask("GET", &path, "").0, 404, "the seat was recreated");
    // The same holds if the seat was recreated in between.
    let Swap::Done { .. } = store.swap(&seat, None, &record(3)).await.unwrap() else { panic!("lost") };
    assert_eq!(store.renew(&seat, &version, &record(4)).await.unwrap(), Swap::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_for_longer_than_a_lease_or_cannot_write_causes_no_second_leader() {
    let mut server = Kubernetes::start();
    let namespace = server.namespace();
    let kubeconfig = server.kubeconfig(&namespace);
    // The server has connections of its own as well.
    let port = port(&server.address());
    let before = connections(port);
    let detector = OverlapDetector::new();
    let mut one = stand(&url(&kubeconfig), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(&kubeconfig), "other", LEASE, &detector);
    other.knows(first).await;

    // The server is killed, and restarts only after a lease.
    server.api.kill();
    until("no candidate leads", || !one.election.is_leader() && !other.election.is_leader()).await;
    server.start_again();
    let second = acted_above(&detector, first).await;

    // etcd stops: the API server runs, but cannot read or write.
    server.etcd.pause();
    until("no candidate leads", || !one.election.is_leader() && !other.election.is_leader()).await;
    server.etcd.resume();
    acted_above(&detector, second).await;
    until("no connections are left open", || connections(port) <= before + 2 * CONNECTIONS).await;
    detector.acts_do_not_overlap().unwrap();
}

/// Waits until there are no more connections to an address than one candidate needs.
async fn few_connections(address: &impl ToString) {
    let port = port(&address.to_string());
    until("no connections are left open", || connections(port) <= CONNECTIONS).await;
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}
