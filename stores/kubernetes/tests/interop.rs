//! Other clients that elect by the same Lease objects: the store reads their objects as they mean them, and
//! writes objects that they accept, field by field.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use support::{TestCandidate, acted_above, seats, stand, until, url};
use tenure_core::{SeatName, SeatStore, Token};
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::Kubernetes;

const LEASE: Duration = Duration::from_secs(2);

/// Another client, which follows the rules of client-go: it writes the spec and leaves the rest of the object as
/// it is.
struct OtherClient {
    server: Arc<Kubernetes>,
    namespace: String,
}

impl OtherClient {
    fn new() -> Self {
        let server = Kubernetes::shared();
        let namespace = server.namespace();
        Self { server, namespace }
    }

    fn url(&self) -> String {
        url(self.server.kubeconfig(&self.namespace))
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn read(&self) -> Value {
        serde_json::from_str(&self.server.must("GET", &format!("{}/jobs", self.path()), "")).unwrap()
    }

    fn create(&self, metadata: Value, spec: Value) {
        let mut metadata = metadata;
        metadata["name"] = "jobs".into();
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
        self.server.must("POST", &self.path(), &lease.to_string());
    }

    /// Reads the Lease, changes the spec and writes it back. Returns whether it was written, or false on a
    /// conflict.
    fn update(&self, change: impl Fn(&mut Value)) -> bool {
        let mut lease = self.read();
        change(&mut lease["spec"]);
        let (status, answer) = self.server.ask("PUT", &format!("{}/jobs", self.path()), &lease.to_string());
        assert!(status == 200 || status == 409, "{status} {answer}");
        status == 200
    }

    /// Returns the spec that it would write to hold the Lease.
    fn spec(holder: &str, seconds: i32, transitions: i32) -> Value {
        let now = now();
        json!({
            "holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": now, "renewTime": now,
            "leaseTransitions": transitions,
        })
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Whether client-go can parse this time: microseconds, always with six digits.
fn is_micro_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000000Z"
}

#[tokio::test(flavor = "multi_thread")]
async fn taking_over_the_lease_of_another_client_preserves_its_other_fields() {
    let other = OtherClient::new();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1-2-3"}]);
    other.create(
        json!({"annotations": {"a/b": "c"}, "labels": {"app": "jobs"}, "ownerReferences": owner.clone()}),
        OtherClient::spec("gone", 3, 41),
    );
    let began = Instant::now();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", LEASE, &detector);
    let token = one.leads().await;
    assert!(began.elapsed() >= Duration::from_secs(3), "the candidate did not wait for the duration in the Lease");
    assert!(token > Token::new(41));
    let lease = other.read();
    assert_eq!(lease["metadata"]["annotations"]["a/b"], "c");
    assert_eq!(lease["metadata"]["labels"]["app"], "jobs");
    assert_eq!(lease["metadata"]["ownerReferences"], owner);
    assert_eq!(lease["spec"]["leaseTransitions"], 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_is_what_client_go_would_write_field_by_field() {
    let other = OtherClient::new();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", LEASE, &detector);
    one.leads().await;
    let first = other.read();
    let spec = |lease: &Value, field: &str| lease["spec"][field].clone();
    let holder = format!("one_{}", one.election.candidate().incarnation);
    assert_eq!(spec(&first, "holderIdentity"), holder);
    assert_eq!(spec(&first, "leaseDurationSeconds"), 2);
    assert_eq!(spec(&first, "leaseTransitions"), 0);
    for field in ["acquireTime", "renewTime"] {
        assert!(is_micro_time(spec(&first, field).as_str().unwrap()), "{first}");
    }
    // A renewal changes `renewTime`, and nothing else.
    until("a renewal", || spec(&other.read(), "renewTime") != spec(&first, "renewTime")).await;
    let renewed = other.read();
    for field in ["holderIdentity", "leaseDurationSeconds", "leaseTransitions", "acquireTime"] {
        assert_eq!(spec(&renewed, field), spec(&first, field), "{field}");
    }
    assert!(spec(&renewed, "renewTime").as_str() > spec(&first, "renewTime").as_str());
    // A release names no holder, and leaves no duration to wait for.
    one.election.stop();
    one.election.stopped().await;
    let released = other.read();
    assert_eq!(spec(&released, "holderIdentity"), "");
    assert_eq!(spec(&released, "leaseDurationSeconds"), 1);
    assert_eq!(spec(&released, "leaseTransitions"), 0);
    // The next term is another transition.
    let mut next = stand(&other.url(), "next", LEASE, &detector);
    next.leads().await;
    assert_eq!(spec(&other.read(), "leaseTransitions"), 1);
    assert!(spec(&other.read(), "acquireTime").as_str() > spec(&first, "acquireTime").as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_holder_is_respected_for_its_own_duration_whatever_its_clock_says() {
    let other = OtherClient::new();
    other.create(json!({}), OtherClient::spec("living", 5, 0));
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", Duration::from_secs(1), &detector);
    one.knows(Token::ZERO).await;
    let mut last = Instant::now();
    // The clock of the other client is years behind, then ahead. The store never reads `renewTime`.
    for year in ["1999", "2001", "2099", "2000"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!one.election.is_leader(), "it leads at the same time as the other client");
        last = Instant::now();
        let renew = |spec: &mut Value| spec["renewTime"] = format!("{year}-01-01T00:00:00.000000Z").into();
        assert!(other.update(renew));
    }
    one.leads().await;
    assert!(last.elapsed() >= Duration::from_secs(5), "the candidate did not wait for the duration in the Lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_released_by_another_client_is_taken_without_waiting() {
    let other = OtherClient::new();
    other.create(json!({}), OtherClient::spec("", 60, 7));
    let detector = OverlapDetector::new();
    let lease = Duration::from_secs(60);
    let began = Instant::now();
    let mut one = stand(&other.url(), "one", lease, &detector);
    assert!(one.leads().await > Token::new(7));
    assert!(began.elapsed() < lease, "the candidate waited for a free seat");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_without_our_label_is_polled_until_a_candidate_of_ours_has_led() {
    let lease = Duration::from_secs(6);
    let other = OtherClient::new();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", lease, &detector);
    let first = one.leads().await;
    let mut next = stand(&other.url(), "next", lease, &detector);
    next.knows(first).await;
    // Another client takes the Lease, and removes our label from it.
    let take = || {
        let mut taken = other.read();
        taken["metadata"].as_object_mut().unwrap().remove("labels");
        taken["spec"] = OtherClient::spec("pushy", 600, 1);
        other.server.ask("PUT", &format!("{}/jobs", other.path()), &taken.to_string()).0 == 200
    };
    until("another client takes the Lease", take).await;
    assert_eq!(one.loses().await.0, first);
    next.knows(first).await;
    let looks = async |next: &TestCandidate, leases: u32| {
        let before = next.counter.counts();
        tokio::time::sleep(lease * leases).await;
        next.counter.counts().regular_reads_since(&before)
    };
    let looked = looks(&next, 2).await;
    assert!((4..=8).contains(&looked), "{looked} reads in two leases, although the watch does not report the Lease");
    // The other client releases the Lease, and no watch reports it.
    let began = Instant::now();
    assert!(other.update(|spec| *spec = OtherClient::spec("", 1, 1)));
    let second = acted_above(&detector, first).await;
    assert!(began.elapsed() < lease * 3 / 4, "the Lease was not polled");
    if next.election.is_leader() {
        std::mem::swap(&mut one, &mut next);
    }
    next.knows(second).await;
    let looked = looks(&next, 3).await;
    assert!(looked <= 6, "{looked} reads in three leases, although the watch reports the Lease");
    one.election.stop();
    assert!(next.leads().await > second);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_stops_when_another_client_takes_its_lease_and_tokens_keep_rising() {
    let other = OtherClient::new();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    // The other client leaves our annotations as they are, so they describe a term that has ended.
    until("another client takes the Lease", || other.update(|spec| *spec = OtherClient::spec("pushy", 2, 1))).await;
    assert_eq!(one.loses().await.0, first);
    let store = seats(&other.url());
    let seat = store.read(&SeatName::new("jobs").unwrap()).await.unwrap().seat.unwrap();
    assert_eq!(&*seat.record.holder.unwrap().id, "pushy");
    assert!(seat.record.token > first, "the term of the other client has no token of its own");
    // Then a third client takes the Lease.
    until("a third client takes the Lease", || other.update(|spec| *spec = OtherClient::spec("third", 2, 2))).await;
    let third = store.read(&SeatName::new("jobs").unwrap()).await.unwrap().seat.unwrap();
    assert!(third.record.token > seat.record.token);
    // Then its lease expires, and our candidate leads again.
    assert!(acted_above(&detector, first).await > third.record.token);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_duration_was_changed_by_hand_the_longer_one_counts() {
    let other = OtherClient::new();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", Duration::from_secs(4), &detector);
    one.leads().await;
    one.elections.stop();
    one.election.stopped().await;
    let store = seats(&other.url());
    let seat = SeatName::new("jobs").unwrap();
    let now = store.read(&seat).await.unwrap().seat.unwrap();
    let holder = tenure_core::Candidate { id: "x".into(), incarnation: tenure_core::Incarnation::from_bits(1) };
    let held = tenure_core::Record { holder: Some(holder), nonce: 1, ..now.record };
    store.swap(&seat, Some(&now.version), &held).await.unwrap();
    for (seconds, waited) in [(9, 9), (1, 4)] {
        assert!(other.update(|spec| spec["leaseDurationSeconds"] = seconds.into()));
        let lease = store.read(&seat).await.unwrap().seat.unwrap().record.lease;
        assert_eq!(lease, Duration::from_secs(waited), "with {seconds} s");
    }
}
