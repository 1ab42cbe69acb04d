//! Beside other clients that elect by the same Lease objects: what they have written is read as they
//! mean it, and what we write is what they would accept, field by field.

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

/// Another client, by the rules of client-go: it writes the spec and leaves the rest of the object alone.
struct Other {
    server: Arc<Kubernetes>,
    namespace: String,
}

impl Other {
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

    /// Gets, changes the spec and puts, as one does who has no time to lose. Returns whether it was written.
    fn update(&self, change: impl Fn(&mut Value)) -> bool {
        let mut lease = self.read();
        change(&mut lease["spec"]);
        let (status, answer) = self.server.ask("PUT", &format!("{}/jobs", self.path()), &lease.to_string());
        assert!(status == 200 || status == 409, "{status} {answer}");
        status == 200
    }

    /// What it would write to hold the Lease.
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

/// A time that client-go can read: microseconds, always six digits of them.
fn is_micro_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000000Z"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_left_by_another_client_is_taken_over_and_nothing_of_it_is_lost() {
    let other = Other::new();
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1-2-3"}]);
    other.create(
        json!({"annotations": {"a/b": "c"}, "labels": {"app": "jobs"}, "ownerReferences": owner.clone()}),
        Other::spec("gone", 3, 41),
    );
    let began = Instant::now();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", LEASE, &detector);
    let token = one.leads().await;
    assert!(began.elapsed() >= Duration::from_secs(3), "it was not waited out by its own duration");
    assert!(token > Token::new(41));
    let lease = other.read();
    assert_eq!(lease["metadata"]["annotations"]["a/b"], "c");
    assert_eq!(lease["metadata"]["labels"]["app"], "jobs");
    assert_eq!(lease["metadata"]["ownerReferences"], owner);
    assert_eq!(lease["spec"]["leaseTransitions"], 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_what_client_go_would_write_field_by_field() {
    let other = Other::new();
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
    // A renewal changes when it was renewed, and nothing else.
    until("a renewal", || spec(&other.read(), "renewTime") != spec(&first, "renewTime")).await;
    let renewed = other.read();
    for field in ["holderIdentity", "leaseDurationSeconds", "leaseTransitions", "acquireTime"] {
        assert_eq!(spec(&renewed, field), spec(&first, field), "{field}");
    }
    assert!(spec(&renewed, "renewTime").as_str() > spec(&first, "renewTime").as_str());
    // A release names nobody, and leaves nothing to wait for.
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
async fn a_live_one_is_waited_out_by_its_own_duration_and_its_clock_does_not_matter() {
    let other = Other::new();
    other.create(json!({}), Other::spec("living", 5, 0));
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", Duration::from_secs(1), &detector);
    one.knows(Token::ZERO).await;
    let mut last = Instant::now();
    // Its clock is years behind, and then ahead: renewTime is theirs to write, and nobody's to read.
    for year in ["1999", "2001", "2099", "2000"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!one.election.is_leader(), "it leads beside another");
        last = Instant::now();
        let renew = |spec: &mut Value| spec["renewTime"] = format!("{year}-01-01T00:00:00.000000Z").into();
        assert!(other.update(renew));
    }
    one.leads().await;
    assert!(last.elapsed() >= Duration::from_secs(5), "it was not waited out");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_another_client_has_released_is_taken_without_waiting() {
    let other = Other::new();
    other.create(json!({}), Other::spec("", 60, 7));
    let detector = OverlapDetector::new();
    let lease = Duration::from_secs(60);
    let began = Instant::now();
    let mut one = stand(&other.url(), "one", lease, &detector);
    assert!(one.leads().await > Token::new(7));
    assert!(began.elapsed() < lease, "a seat that is free was waited out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_without_our_label_is_looked_at_and_heard_of_again_once_one_of_ours_has_led() {
    let lease = Duration::from_secs(6);
    let other = Other::new();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", lease, &detector);
    let first = one.leads().await;
    let mut next = stand(&other.url(), "next", lease, &detector);
    next.knows(first).await;
    // Another client takes it, and makes it as if it had never been ours.
    let take = || {
        let mut taken = other.read();
        taken["metadata"].as_object_mut().unwrap().remove("labels");
        taken["spec"] = Other::spec("pushy", 600, 1);
        other.server.ask("PUT", &format!("{}/jobs", other.path()), &taken.to_string()).0 == 200
    };
    until("another client takes it", take).await;
    assert_eq!(one.loses().await.0, first);
    next.knows(first).await;
    let looks = async |next: &TestCandidate, leases: u32| {
        let before = next.counter.counts().reads;
        tokio::time::sleep(lease * leases).await;
        next.counter.counts().reads - before
    };
    let looked = looks(&next, 2).await;
    assert!((4..=8).contains(&looked), "{looked} looks in two leases: it is not heard of");
    // It is given up, and nobody is told.
    let began = Instant::now();
    assert!(other.update(|spec| *spec = Other::spec("", 1, 1)));
    let second = acted_above(&detector, first).await;
    assert!(began.elapsed() < lease * 3 / 4, "it was not looked at");
    if next.election.is_leader() {
        std::mem::swap(&mut one, &mut next);
    }
    next.knows(second).await;
    let looked = looks(&next, 3).await;
    assert!(looked <= 6, "{looked} looks in three leases: it is heard of");
    one.election.stop();
    assert!(next.leads().await > second);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_another_client_takes_stops_and_tokens_go_on_rising() {
    let other = Other::new();
    let detector = OverlapDetector::new();
    let mut one = stand(&other.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    // It leaves our annotations as they are, so they tell of a term that is over.
    until("another client takes it", || other.update(|spec| *spec = Other::spec("pushy", 2, 1))).await;
    assert_eq!(one.loses().await.0, first);
    let store = seats(&other.url());
    let seat = store.read(&SeatName::new("jobs").unwrap()).await.unwrap().seat.unwrap();
    assert_eq!(&*seat.record.holder.unwrap().id, "pushy");
    assert!(seat.record.token > first, "its term has no number of its own");
    // And once more, by a third.
    until("a third takes it", || other.update(|spec| *spec = Other::spec("third", 2, 2))).await;
    let third = store.read(&SeatName::new("jobs").unwrap()).await.unwrap().seat.unwrap();
    assert!(third.record.token > seat.record.token);
    // Then it is gone, and we lead again.
    assert!(acted_above(&detector, first).await > third.record.token);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_duration_was_changed_by_hand_is_waited_out_by_the_longer_one() {
    let other = Other::new();
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
