//! What a network and a cluster can do to elections: the laws about that, and what only Kubernetes can do. Whatever it
//! is, no two ever work at once: every test ends with that, by the moments at which work was done.

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

/// A fifteenth of it must do for a call, on a busy machine.
const LEASE: Duration = Duration::from_secs(3);

/// A candidate keeps a connection for its watch and one for each call that it has had under way at the same time.
const CONNECTIONS: usize = 6;

const ALL: &[&str] = &["create", "update", "delete", "list", "watch"];

/// A namespace of a server, and what the server looks like to the laws: encrypted, or through a gate.
struct Cluster {
    server: Arc<Kubernetes>,
    namespace: String,
    gate: Option<Gate>,
    /// Where the gate runs.
    runtime: Option<Runtime>,
}

impl Cluster {
    fn alone(&mut self) -> &mut Kubernetes {
        Arc::get_mut(&mut self.server).expect("nobody else uses a server that is stopped or restarted")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.gate = None;
        // It may not be waited for where this is dropped.
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

    /// The server takes its time to come back.
    fn long_lease(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// The record stands in an annotation, as text within text.
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
async fn a_watch_that_hangs_is_noticed_and_made_anew() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", gate.address()));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", LEASE, &detector);
    other.knows(first).await;
    until("it watches", || gate.count("GET", "watch=1") >= 1).await;
    gate.mute(true);
    until("it watches anew", || gate.count("GET", "watch=1") >= 3).await;
    gate.mute(false);
    assert_eq!(detector.work_spans(), 1, "the term was lost");
    one.election.stop();
    other.leads().await;
    few_connections(&gate.address()).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_place_the_server_has_forgotten_begins_with_another_list() {
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
    until("it watches", || gate.count("GET", "watch=1") >= 1).await;
    // Twice, as a server does that has compacted its history (410 Gone).
    for _ in 0..2 {
        let (all, watches) = (gate.count("GET", "labelSelector="), gate.count("GET", "watch=1"));
        gate.say_to_watches(
            r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}}"#,
        );
        until("it watches again", || gate.count("GET", "watch=1") > watches).await;
        let lists = gate.count("GET", "labelSelector=") - all - (gate.count("GET", "watch=1") - watches);
        assert!(lists >= 1, "it did not list what it may have missed");
    }
    let began = Instant::now();
    one.election.stop();
    other.leads().await;
    assert!(began.elapsed() < lease / 3, "it was not told");
    few_connections(&gate.address()).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revoked_in_mid_term_is_told_and_another_takes_over() {
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
    let (told, lost) = one.is_denied_and_loses().await;
    assert!(told.contains("does not know who we are (401)") && !told.contains(&token), "{told}");
    assert_eq!(lost, first);
    let second = acted_above(&detector, first).await;
    // Another token in the same file lets it in again: it can write, and so leads when the other has left.
    std::fs::copy(server.kubeconfig(&namespace), &kubeconfig).unwrap();
    other.election.stop();
    one.recovers().await;
    assert!(one.leads().await > second);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_deleted_by_an_operator_is_waited_out_and_tokens_go_on_rising() {
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
async fn a_leader_whose_seat_is_deleted_or_given_to_another_by_hand_ends_at_once() {
    // So long that no renewal is due while this is tested.
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
    assert_eq!(one.counter.counts().renewals, renewals, "it has waited for its next renewal");
    one.election.stop();
    within("it stops", one.election.stopped()).await;

    // A candidate that has never seen the seat has a higher token all the same.
    let mut fresh = stand(&url(server.kubeconfig(&namespace)), "fresh", lease, &detector);
    let second = fresh.leads().await;
    assert!(second > first, "{second} after {first}");
    let renewals = fresh.counter.counts().renewals;
    let mut edited: serde_json::Value = serde_json::from_str(&server.must("GET", &path, "")).unwrap();
    edited["spec"]["holderIdentity"] = "somebody".into();
    server.must("PUT", &path, &edited.to_string());
    assert_eq!(fresh.loses().await.0, second);
    assert_eq!(fresh.counter.counts().renewals, renewals, "it has waited for its next renewal");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_make_a_deleted_seat_anew() {
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
        unknown: Default::default(),
    };
    let Swap::Done { version, .. } = store.swap(&seat, None, &record(1)).await.unwrap() else { panic!("lost") };
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
    server.must("DELETE", &path, "");
    assert_eq!(store.renew(&seat, &version, &record(2)).await.unwrap(), Swap::Lost);
    assert_eq!(server.ask("GET", &path, "").0, 404, "it is back");
    // Also if another has made it anew in between.
    let Swap::Done { .. } = store.swap(&seat, None, &record(3)).await.unwrap() else { panic!("lost") };
    assert_eq!(store.renew(&seat, &version, &record(4)).await.unwrap(), Swap::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_forty_candidates_one_leads_at_a_time() {
    // Long, so that forty engines in one process have the time; they do not wait for it.
    let lease = Duration::from_secs(20);
    let server = Kubernetes::shared();
    let kubeconfig = server.kubeconfig(&server.namespace());
    let detector = OverlapDetector::new();
    let candidates: Vec<_> = (0..40).map(|n| stand(&url(&kubeconfig), &format!("c{n}"), lease, &detector)).collect();
    let mut token = Token::ZERO;
    for _ in 0..4 {
        token = acted_above(&detector, token).await;
        let leaders: Vec<_> = candidates.iter().filter(|candidate| candidate.election.is_leader()).collect();
        assert!(leaders.len() <= 1, "{} lead at once", leaders.len());
        leaders.iter().for_each(|leader| leader.election.stop());
    }
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_for_longer_than_a_lease_or_cannot_write_makes_no_second_leader() {
    let mut server = Kubernetes::start();
    let namespace = server.namespace();
    let kubeconfig = server.kubeconfig(&namespace);
    // The server has connections of its own, too.
    let port = port(&server.address());
    let before = connections(port);
    let detector = OverlapDetector::new();
    let mut one = stand(&url(&kubeconfig), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&url(&kubeconfig), "other", LEASE, &detector);
    other.knows(first).await;

    // Killed, and back only after a lease.
    server.api.kill();
    until("nobody leads", || !one.election.is_leader() && !other.election.is_leader()).await;
    server.start_again();
    let second = acted_above(&detector, first).await;

    // The store behind it stops: the server is there, and cannot do anything.
    server.etcd.pause();
    until("nobody leads", || !one.election.is_leader() && !other.election.is_leader()).await;
    server.etcd.resume();
    acted_above(&detector, second).await;
    until("no connections are left behind", || connections(port) <= before + 2 * CONNECTIONS).await;
    detector.acts_do_not_overlap().unwrap();
}

/// Waits until there are no more connections to an address than one candidate needs.
async fn few_connections(address: &impl ToString) {
    let port = port(&address.to_string());
    until("no connections are left behind", || connections(port) <= CONNECTIONS).await;
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}
