//! The cost of elections, by the requests to the API server.

mod support;

use std::time::Duration;

use support::gate::Gate;
use support::{stand, until, url, within};
use tenure_core::{Board, Builder, DynNotes, Elections, NoteState, SeatName};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::TestCandidate;
use tenure_testkit::servers::Kubernetes;

/// Long, so that no call times out on a busy machine: a second attempt would be counted as well.
const LEASE: Duration = Duration::from_secs(15);

/// Starts a gate before the server. Returns it with the URL of a store that goes through it.
async fn through_a_gate(server: &Kubernetes, namespace: &str) -> (Gate, String) {
    let gate = Gate::before(server).await;
    let kubeconfig = server.kubeconfig_by(namespace, &format!("http://{}", gate.address()));
    (gate, url(kubeconfig))
}

/// Counts the writes of the seat, the writes of the process's note, and all other requests.
fn requests(gate: &Gate) -> (usize, usize, usize) {
    let (seat, process) = (gate.count("PUT", "/leases/jobs"), gate.count("PUT", "/leases/tenure-processes-"));
    (seat, process, gate.requests().len() - seat - process)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_one_write_and_no_other_request() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, url) = through_a_gate(&server, &namespace).await;
    let mut one = stand(&url, "one", LEASE, &OverlapDetector::new());
    one.leads().await;
    until("the candidate watches", || gate.count("GET", "watch=1") == 1).await;
    within("the leader renews", one.counter.wait_for(|counts| counts.renewals > 0)).await;
    let (renewals, (seat, process, other)) = (one.counter.counts().renewals, requests(&gate));
    within("the leader renews", one.counter.wait_for(|counts| counts.renewals >= renewals + 3)).await;
    let renewals = (one.counter.counts().renewals - renewals) as usize;
    let now = requests(&gate);
    // One request may be in flight at either end.
    let (seat, process, other) = (now.0 - seat, now.1 - process, now.2 - other);
    assert!(seat <= renewals + 1 && seat + 1 >= renewals, "{seat} writes for {renewals} renewals");
    assert!(process <= renewals + 1, "{process} writes of the process's note for {renewals} renewals");
    assert_eq!(other, 0, "unexpected requests: {:?}", gate.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_never_writes_the_seat_and_reads_once_a_lease() {
    let lease = LEASE;
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let token = one.leads().await;
    let (gate, through) = through_a_gate(&server, &namespace).await;
    let mut other = stand(&through, "other", lease, &detector);
    other.knows(token).await;
    until("the candidate watches", || gate.count("GET", "watch=1") == 1).await;
    let (reads, renewals) = (other.counter.counts().reads, one.counter.counts().renewals);
    let leases = 2;
    tokio::time::sleep(lease * leases).await;
    let (looked, renewed) = (other.counter.counts().reads - reads, one.counter.counts().renewals - renewals);
    assert!(renewed >= 2, "the leader does not renew");
    // A read is due one lease after the last received renewal, which can be a third of a lease old already.
    assert!(looked <= u64::from(leases) * 3 / 2 + 2, "{looked} reads in {leases} leases");
    assert_eq!(requests(&gate).0, 0, "a follower has written the seat: {:?}", gate.requests());
    assert!(requests(&gate).1 <= leases as usize * 3 + 2, "it announces itself too often: {:?}", gate.requests());
    assert_eq!(gate.count("GET", "watch=1"), 1, "one watch is enough: {:?}", gate.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_renews_less_often_than_every_third_of_a_lease_causes_no_further_watches() {
    let lease = Duration::from_secs(9);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let detector = OverlapDetector::new();
    let store = KubernetesStore::from_url(&url(server.kubeconfig(&namespace))).unwrap();
    let seldom = |election: Builder| election.lease(lease).renew_every(lease * 9 / 20);
    let mut one = TestCandidate::stand(store, "one", &detector, seldom);
    let token = one.leads().await;
    let (gate, through) = through_a_gate(&server, &namespace).await;
    let mut other = stand(&through, "other", lease, &detector);
    other.knows(token).await;
    let renewed = async |times| {
        let renewals = one.counter.counts().renewals + times;
        within("the leader renews", one.counter.wait_for(|counts| counts.renewals >= renewals)).await;
    };
    // The follower has received two renewals.
    renewed(3).await;
    let watches = gate.count("GET", "watch=1");
    renewed(4).await;
    assert_eq!(gate.count("GET", "watch=1"), watches, "the store watches again: {:?}", gate.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_elections_of_a_process_share_one_watch() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, url) = through_a_gate(&server, &namespace).await;
    let elections = Elections::new(KubernetesStore::from_url(&url).unwrap());
    let all: Vec<_> = (0..60)
        .map(|number| elections.election(format!("e{number}")).lease(Duration::from_secs(60)).start().unwrap())
        .collect();
    for election in &all {
        within("the candidate leads", election.elected()).await.unwrap();
    }
    let open = || {
        let requests = gate.requests();
        requests
            .iter()
            .rposition(|line| line.contains("watch=1"))
            .is_some_and(|at| requests[..at].iter().filter(|line| line.contains("labelSelector")).count() < 60)
    };
    until("one watch covers all seats", open).await;
    all.iter().for_each(|election| election.stop());
    for election in &all {
        within("the election stops", election.stopped()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_announces_itself_by_one_write_however_many_candidates_it_has() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, url) = through_a_gate(&server, &namespace).await;
    let store = KubernetesStore::from_url(&url).unwrap();
    let notes: &dyn DynNotes = &store;
    let put = async |board: Board| notes.put_one(&board, "abc", "{}", Duration::from_secs(300)).await.unwrap();
    assert_eq!(put(Board::Processes).await, NoteState::Absent);
    for number in 0..10 {
        put(Board::Candidates(SeatName::new(format!("e{number}")).unwrap())).await;
    }
    until("old notes are removed", || gate.count("GET", "labelSelector=tenure.election%2Fboard") >= 1).await;
    let before = gate.requests().len();
    for _ in 0..5 {
        assert_eq!(put(Board::Processes).await, NoteState::Present);
    }
    assert_eq!(gate.requests().len() - before, 5, "{:?}", gate.requests());
    assert_eq!(gate.count("PUT", "tenure-processes-"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_candidates_write_once_a_lease_each() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, url) = through_a_gate(&server, &namespace).await;
    let detector = OverlapDetector::new();
    let candidates: Vec<_> = (0..30).map(|n| stand(&url, &format!("c{n}"), LEASE, &detector)).collect();
    let writes = || ["PUT", "POST", "DELETE"].iter().map(|method| gate.count(method, "/leases")).sum::<usize>();
    let announced = || gate.count("POST", "") >= 61;
    until("all have announced themselves, and one leads", announced).await;
    let (before, began) = (writes(), std::time::Instant::now());
    tokio::time::sleep(LEASE * 2).await;
    let (writes, leases) = (writes() - before, began.elapsed().as_secs_f64() / LEASE.as_secs_f64());
    // One write per process and lease, and the leader's renewals.
    let most = 30.0 * (leases + 1.0) + 6.0 * (leases + 1.0);
    assert!(writes as f64 <= most, "{writes} writes of 30 candidates in {leases:.1} leases");
    drop(candidates);
}

/// Counts the lists and watches of seats during a span of time.
async fn count_watches(gate: &Gate, time: Duration) -> (usize, usize) {
    let counts = || {
        let (all, watches) = (gate.count("GET", "labelSelector=tenure.election%2Fseat"), gate.count("GET", "watch=1"));
        (all - watches, watches)
    };
    let before = counts();
    tokio::time::sleep(time).await;
    (counts().0 - before.0, counts().1 - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_always_fails_is_retried_with_backoff() {
    let lease = Duration::from_secs(6);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, through) = through_a_gate(&server, &namespace).await;
    gate.begin_watches_with(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"InternalError","code":500}}"#,
    );
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&through, "other", lease, &detector);
    other.knows(first).await;
    let (lists, watches) = count_watches(&gate, lease * 2).await;
    // Pauses of 50 ms, 100 ms, … up to 5 s, each shortened by up to half.
    assert!(lists <= 20 && watches <= 20, "{lists} lists and {watches} watches in {:?}", lease * 2);
    // Candidates poll meanwhile, and are notified again once the server has recovered.
    gate.begin_watches_with("");
    until("the follower watches", || gate.count("GET", "watch=1") > 0).await;
    one.election.stop();
    assert!(other.leads().await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_watch_is_retried_once_a_minute() {
    let lease = Duration::from_secs(6);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let token = server.service_account(&namespace, "no-watch", &["create", "update", "list"]);
    let no_watch = url(server.kubeconfig_of(&token, &namespace, &format!("http://{}", gate.address())));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&no_watch, "other", lease, &detector);
    other.knows(first).await;
    until("the follower tries to watch", || gate.count("GET", "watch=1") > 0).await;
    let reads = other.counter.counts().reads;
    let (lists, watches) = count_watches(&gate, lease * 2).await;
    assert!(lists <= 1 && watches <= 1, "{lists} lists and {watches} watches in {:?}", lease * 2);
    let reads = other.counter.counts().reads - reads;
    assert!((4..=8).contains(&reads), "{reads} reads in {:?}", lease * 2);
    one.election.stop();
    assert!(other.leads().await > first);
    detector.acts_do_not_overlap().unwrap();
}
