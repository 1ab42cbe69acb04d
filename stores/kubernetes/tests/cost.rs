//! What elections cost, by what goes to the API server.

mod support;

use std::time::Duration;

use support::gate::Gate;
use support::{stand, until, url, within};
use tenure_core::{Board, DynNotes, Elections, NoteState, SeatName};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::servers::Kubernetes;

/// Long, so that no call is given up on a busy machine: a second attempt would count, too.
const LEASE: Duration = Duration::from_secs(15);

/// A server, a gate before it, and the URL of a store that goes through the gate.
async fn through_a_gate(server: &Kubernetes, namespace: &str) -> (Gate, String) {
    let gate = Gate::before(server).await;
    let kubeconfig = server.kubeconfig_by(namespace, &format!("http://{}", gate.address()));
    (gate, url(kubeconfig))
}

/// How many writes of the seat went through, of what tells that the process is there, and what else was asked.
fn asked(gate: &Gate) -> (usize, usize, usize) {
    let (seat, process) = (gate.count("PUT", "/leases/jobs"), gate.count("PUT", "/leases/tenure-processes-"));
    (seat, process, gate.asked().len() - seat - process)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_one_write_and_nothing_else_is_asked() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, url) = through_a_gate(&server, &namespace).await;
    let mut one = stand(&url, "one", LEASE, &OverlapDetector::new());
    one.leads().await;
    until("it watches", || gate.count("GET", "watch=1") == 1).await;
    within("it renews", one.counter.wait_for(|counts| counts.renewals > 0)).await;
    let (renewals, (seat, process, else_)) = (one.counter.counts().renewals, asked(&gate));
    within("it renews", one.counter.wait_for(|counts| counts.renewals >= renewals + 3)).await;
    let renewals = (one.counter.counts().renewals - renewals) as usize;
    let now = asked(&gate);
    // One may still be under way at either end.
    let (seat, process, else_) = (now.0 - seat, now.1 - process, now.2 - else_);
    assert!(seat <= renewals + 1 && seat + 1 >= renewals, "{seat} writes for {renewals} renewals");
    assert!(process <= renewals + 1, "{process} times that it is there, for {renewals} renewals");
    assert_eq!(else_, 0, "something else was asked: {:?}", gate.asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_never_writes_the_seat_and_looks_once_a_lease() {
    let lease = LEASE;
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let token = one.leads().await;
    let (gate, through) = through_a_gate(&server, &namespace).await;
    let mut other = stand(&through, "other", lease, &detector);
    other.knows(token).await;
    until("it watches", || gate.count("GET", "watch=1") == 1).await;
    let (reads, renewals) = (other.counter.counts().reads, one.counter.counts().renewals);
    let leases = 2;
    tokio::time::sleep(lease * leases).await;
    let (looked, renewed) = (other.counter.counts().reads - reads, one.counter.counts().renewals - renewals);
    assert!(renewed >= 2, "the leader does not renew");
    // A look is due a lease after what it has seen was heard of, which is up to a third of one earlier.
    assert!(looked <= u64::from(leases) * 3 / 2 + 2, "{looked} reads in {leases} leases");
    assert_eq!(asked(&gate).0, 0, "a follower has written the seat: {:?}", gate.asked());
    assert!(asked(&gate).1 <= leases as usize * 3 + 2, "it tells too often that it is there: {:?}", gate.asked());
    assert_eq!(gate.count("GET", "watch=1"), 1, "one watch is enough: {:?}", gate.asked());
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
        within("it leads", election.elected()).await.unwrap();
    }
    let open = || {
        let asked = gate.asked();
        asked
            .iter()
            .rposition(|line| line.contains("watch=1"))
            .is_some_and(|at| asked[..at].iter().filter(|line| line.contains("labelSelector")).count() < 60)
    };
    until("they are watched together", open).await;
    all.iter().for_each(|election| election.stop());
    for election in &all {
        within("it stops", election.stopped()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_says_that_it_is_there_by_one_write_whatever_it_has_announced() {
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
    until("it has tidied up", || gate.count("GET", "labelSelector=tenure.election%2Fboard") >= 1).await;
    let asked = gate.asked().len();
    for _ in 0..5 {
        assert_eq!(put(Board::Processes).await, NoteState::Present);
    }
    assert_eq!(gate.asked().len() - asked, 5, "{:?}", gate.asked());
    assert_eq!(gate.count("PUT", "tenure-processes-"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_candidates_write_little() {
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
    // Each process once a lease, and the leader's renewals.
    let most = 30.0 * (leases + 1.0) + 6.0 * (leases + 1.0);
    assert!(writes as f64 <= most, "{writes} writes of 30 candidates in {leases:.1} leases");
    drop(candidates);
}

/// How many lists and watches of marked objects were asked for while the time passed.
async fn listened(gate: &Gate, time: Duration) -> (usize, usize) {
    let counts = || {
        let (all, watches) = (gate.count("GET", "labelSelector=tenure.election%2Fseat"), gate.count("GET", "watch=1"));
        (all - watches, watches)
    };
    let before = counts();
    tokio::time::sleep(time).await;
    (counts().0 - before.0, counts().1 - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_always_fails_is_tried_ever_more_rarely() {
    let lease = Duration::from_secs(6);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let (gate, through) = through_a_gate(&server, &namespace).await;
    gate.greet_watches(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"InternalError","code":500}}"#,
    );
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&through, "other", lease, &detector);
    other.knows(first).await;
    let (lists, watches) = listened(&gate, lease * 2).await;
    // 20 ms, 40 ms, … up to a third of a lease, each at least half of that.
    assert!(lists <= 20 && watches <= 20, "{lists} lists and {watches} watches in {:?}", lease * 2);
    // Looked for meanwhile, and heard of again once the server has recovered.
    gate.greet_watches("");
    until("it listens", || gate.count("GET", "watch=1") > 0).await;
    one.election.stop();
    assert!(other.leads().await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_forbidden_is_tried_once_a_minute() {
    let lease = Duration::from_secs(6);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let token = server.service_account(&namespace, "blind", &["create", "update", "list"]);
    let blind = url(server.kubeconfig_of(&token, &namespace, &format!("http://{}", gate.address())));
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&blind, "other", lease, &detector);
    other.knows(first).await;
    until("it tries to watch", || gate.count("GET", "watch=1") > 0).await;
    let reads = other.counter.counts().reads;
    let (lists, watches) = listened(&gate, lease * 2).await;
    assert!(lists <= 1 && watches <= 1, "{lists} lists and {watches} watches in {:?}", lease * 2);
    let reads = other.counter.counts().reads - reads;
    assert!((4..=8).contains(&reads), "{reads} looks in {:?}", lease * 2);
    one.election.stop();
    assert!(other.leads().await > first);
    detector.acts_do_not_overlap().unwrap();
}
