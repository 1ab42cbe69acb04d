//! Faults of a network, a cluster and its operator: the laws about them, and cases that are special to etcd.
//! Every test ends by checking that no two candidates ever worked at once, by comparing the moments of their
//! work.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{TestCandidate, acted_above, seats, stand, stand_with, until, within};
use tenure_core::{
    Candidate, Clock, EndReason, Incarnation, Record, SeatName, SeatStore, Swap, Takeover, Token, record,
};
use tenure_etcd::EtcdStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Etcd, EtcdSetup, connections};

const LEASE: Duration = Duration::from_secs(3);

/// A lease within which a cluster can elect another leader.
const LONG: Duration = Duration::from_secs(9);

fn through(proxy: &Proxy) -> String {
    format!("etcd://{}", proxy.address())
}

/// A cluster with one member.
struct Cluster(Etcd);

impl faults::Server for Cluster {
    fn start(_: Wish) -> Self {
        let mut etcd = Etcd::start();
        // A member has a connection to itself, for its gateway, and may report that it is healthy before it is
        // open.
        let port = etcd.members[0].address().rsplit_once(':').unwrap().1.parse().unwrap();
        etcd.members[0].process.wait_until("the gateway connects", || connections(port) > 0);
        Self(etcd)
    }

    fn address(&self) -> String {
        self.0.members[0].address()
    }

    fn open(&self, address: &str) -> Box<dyn tenure_core::DynStore> {
        Box::new(EtcdStore::from_url(&format!("etcd://{address}")).unwrap())
    }

    /// One connection for each process: calls, heartbeats and the watch share it.
    fn connections(&self, processes: usize) -> usize {
        processes
    }

    fn pause(&mut self) {
        self.0.members[0].process.pause();
    }

    fn resume(&mut self) {
        self.0.members[0].process.resume();
    }

    fn restart(&mut self) {
        self.0.members[0].process.kill();
        self.0.members[0].restart();
    }

    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.0.restart_empty();
    }

    /// Heartbeats contain no text to recognize them by.
    fn renewals(&self) -> &'static [&'static str] {
        &[]
    }
}

mod laws {
    tenure_testkit::faults!(super::Cluster);
}

/// Stands with `takeover=safe`, which waits until a leader whose session an operator ended must have stopped.
/// With `takeover=instant` the two can overlap until the old leader is notified, as the promises say.
fn stand_safely(url: &str, id: &str, detector: &OverlapDetector) -> TestCandidate {
    stand_with(url, id, LEASE, detector, |election| election.takeover(Takeover::Safe))
}

async fn follows(candidate: &TestCandidate) {
    within("the candidate watches", candidate.counter.wait_for(|counts| counts.looks > 0)).await;
}

async fn renews_on(candidate: &TestCandidate) {
    let renewals = candidate.counter.counts().renewals;
    within("the candidate renews again", candidate.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
}

/// Waits until a renewal that began after this call has extended the term, or the term has ended. The first
/// renewal may have been in flight already, so this waits for two.
async fn is_kept(candidate: &TestCandidate) {
    for _ in 0..2 {
        let deadline = || candidate.election.term().map(|term| term.deadline());
        let before = deadline();
        until("the term is renewed, or has ended", || deadline() != before).await;
    }
}

/// Waits until the term of a candidate counts from a moment after this call, or has ended.
async fn is_renewed_from_now_on(candidate: &TestCandidate, lease: Duration) {
    let deadline = || candidate.election.term().map(|term| term.deadline());
    // The leader counts on a little less than its lease.
    let enough = Clock::system().now() + lease * 98 / 100;
    until("the term is renewed, or has ended", || deadline().is_none_or(|deadline| deadline >= enough)).await;
}

/// Waits until each candidate has exactly one connection: no fault left another one open. Each member has one to
/// itself.
async fn has_one_connection_each(etcd: &Etcd, candidates: usize) {
    let expected = etcd.members.len() + candidates;
    until("each candidate has one connection", || etcd.connections() == expected).await;
}

/// Runs `etcdctl` on a thread that can block.
async fn ctl(etcd: &Arc<Etcd>, arguments: &[&str]) -> String {
    let (etcd, arguments): (_, Vec<_>) = (etcd.clone(), arguments.iter().map(ToString::to_string).collect());
    let run = move || etcd.ctl(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.expect("etcdctl succeeds")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_wakes_a_follower() {
    // So long that no candidate polls while this test waits.
    let long = Duration::from_secs(1200);
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let detector = OverlapDetector::new();
    let mut one = stand(&etcd.url(), "one", long, &detector);
    one.leads().await;
    let mut other = stand(&through(&proxy), "other", long, &detector);
    let watches = || etcd.metric("etcd_debugging_mvcc_watcher_total") as u64;
    until("both watch", || watches() == 2).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let looks = other.counter.counts().looks;
        proxy.reset();
        within("the follower reads again", other.counter.wait_for(|counts| counts.looks > looks)).await;
    }
    // The watch on the new connection notifies the follower.
    one.election.stop();
    other.leads().await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_after_the_call_timed_out_costs_no_term() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let detector = OverlapDetector::new();
    let mut one = stand(&through(&proxy), "one", LONG, &detector);
    one.leads().await;
    let other = stand(&etcd.url(), "other", LONG, &detector);
    follows(&other).await;
    // A call times out after a fifteenth of the lease. Its answer still counts for the next call.
    proxy.delay(Way::Down, LONG / 10);
    is_kept(&one).await;
    is_kept(&one).await;
    assert!(one.election.is_leader());
    assert_eq!(detector.work_spans(), 1, "the term was lost");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_the_clusters_leader_or_a_hanging_member_costs_no_term() {
    // A member that led the cluster, was stopped, and resumes later than a lease after the last renewal that it
    // knows of, revokes leases that were renewed since, as the promises say. So no member is stopped for that
    // long.
    let lease = Duration::from_secs(24);
    let mut etcd = EtcdSetup::new().members(3).start();
    let detector = OverlapDetector::new();
    let mut one = stand(&etcd.url(), "one", lease, &detector);
    one.leads().await;
    let other = stand(&etcd.url(), "other", lease, &detector);
    follows(&other).await;
    let leader = etcd.leader().expect("the cluster has a leader");
    etcd.members[leader].process.kill();
    is_kept(&one).await;
    etcd.members[leader].restart();
    // Pauses each member in turn, because we do not know which one we are connected to. Two of three must run.
    for number in 0..3 {
        etcd.members[number].process.pause();
        is_renewed_from_now_on(&one, lease).await;
        etcd.members[number].resume();
    }
    assert!(one.election.is_leader());
    assert_eq!(detector.work_spans(), 1, "the term was lost");
    has_one_connection_each(&etcd, 2).await;
    one.election.stop();
    let mut other = other;
    other.leads().await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_quorum_ends_the_term_and_a_candidate_leads_once_it_is_back() {
    let mut etcd = EtcdSetup::new().members(3).start();
    let detector = OverlapDetector::new();
    let mut one = stand(&etcd.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    let other = stand(&etcd.url(), "other", LEASE, &detector);
    follows(&other).await;
    let leader = etcd.leader().expect("the cluster has a leader");
    let gone = [leader, (leader + 1) % 3];
    gone.iter().for_each(|member| etcd.members[*member].process.kill());
    assert_eq!(one.loses().await, (first, EndReason::NotRenewed));
    assert!(!other.election.is_leader(), "a candidate leads on the word of a minority");
    gone.iter().for_each(|member| etcd.members[*member].process.restart());
    assert!(acted_above(&detector, first).await > first);
    has_one_connection_each(&etcd, 2).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_revoked_by_an_operator_ends_the_term_at_once() {
    let etcd = Arc::new(Etcd::start());
    let detector = OverlapDetector::new();
    let mut one = stand_safely(&etcd.url(), "one", &detector);
    let first = one.leads().await;
    let other = stand_safely(&etcd.url(), "other", &detector);
    follows(&other).await;
    let seat = ctl(&etcd, &["get", "--print-value-only", "tenure/seats/jobs"]).await;
    let lease = seat.lines().next().unwrap().trim_start_matches('0').to_owned();
    let renewals = one.counter.counts().renewals;
    ctl(&etcd, &["lease", "revoke", &lease]).await;
    assert_eq!(one.loses().await, (first, EndReason::SessionOver));
    assert!(one.counter.counts().renewals <= renewals + 1, "the leader was not notified, but found out by a renewal");
    assert!(acted_above(&detector, first).await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_operator_deletes_a_seat_candidates_wait_and_tokens_keep_rising() {
    let etcd = Arc::new(Etcd::start());
    let detector = OverlapDetector::new();
    let mut one = stand(&etcd.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    let other = stand(&etcd.url(), "other", LEASE, &detector);
    follows(&other).await;
    ctl(&etcd, &["del", "--prefix", "tenure/seats/"]).await;
    assert_eq!(one.loses().await.0, first);
    assert!(acted_above(&detector, first).await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_above_a_deleted_seat_even_if_they_exceeded_the_revision() {
    let etcd = Arc::new(Etcd::start());
    let seat = SeatName::new("jobs").unwrap();
    let record = |token: u64| {
        let json = format!(r#"{{"v":1,"token":{token},"lease_ms":3000,"nonce":"0000000000000001"}}"#);
        record::from_json(&json).unwrap_or_else(|error| panic!("{error}"))
    };
    let store = seats(&etcd.url());
    let swap = store.swap(&seat, None, &record(1_000_000)).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
    ctl(&etcd, &["del", "tenure/seats/jobs"]).await;
    let another = seats(&etcd.url());
    let reading = another.read(&seat).await.unwrap();
    assert!(reading.seat.is_none() && reading.floor >= Token::new(1_000_000), "{reading:?}");
    for (token, is_written) in [(1, false), (1_000_000, false), (1_000_001, true)] {
        let swap = another.swap(&seat, None, &record(token)).await.unwrap();
        assert_eq!(matches!(swap, Swap::Done { .. }), is_written, "{token}");
    }
    another.forget(&seat).await.unwrap();
    assert!(another.read(&seat).await.unwrap().floor >= Token::new(1_000_001));
    // A seat that is forgotten leaves its token behind, although the revision is high enough as a floor.
    let other = SeatName::new("other").unwrap();
    another.swap(&other, None, &record(1)).await.unwrap();
    another.forget(&other).await.unwrap();
    let left = ctl(&etcd, &["get", "--prefix", "--keys-only", "tenure/"]).await;
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["tenure/floors/jobs", "tenure/floors/other"]);
}

/// The situation after a record was rewritten and the answer was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_matches_holder_and_term_whichever_write_was_the_last() {
    let etcd = Etcd::start();
    let (store, seat) = (seats(&etcd.url()), SeatName::new("jobs").unwrap());
    let version = |swap: Swap| match swap {
        Swap::Done { version, .. } => version,
        Swap::Lost => panic!("the seat was lost"),
    };
    let record = |incarnation, token, nonce| {
        let holder = Candidate { id: "me".into(), incarnation: Incarnation::from_bits(incarnation) };
        Record { nonce, ..Record::new(Some(holder), Token::new(token), LONG) }
    };
    let won = version(store.swap(&seat, None, &record(1, 1, 1)).await.unwrap());
    let rewritten = version(store.swap(&seat, Some(&won), &record(1, 1, 2)).await.unwrap());
    for held in [&won, &rewritten] {
        assert_eq!(version(store.renew(&seat, held, &record(1, 1, 1)).await.unwrap()), rewritten);
    }
    // Another candidate of this process, and another term, use the same session.
    version(store.swap(&seat, Some(&rewritten), &record(2, 2, 3)).await.unwrap());
    for other in [record(1, 1, 1), record(2, 1, 3), record(1, 2, 3)] {
        assert_eq!(store.renew(&seat, &rewritten, &other).await.unwrap(), Swap::Lost, "{other:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_are_notified_despite_compaction() {
    let etcd = Arc::new(Etcd::start());
    let detector = OverlapDetector::new();
    let mut one = stand(&etcd.url(), "one", LONG, &detector);
    one.leads().await;
    let mut other = stand(&etcd.url(), "other", LONG, &detector);
    follows(&other).await;
    for _ in 0..20 {
        ctl(&etcd, &["put", "elsewhere", "x"]).await;
    }
    let status = ctl(&etcd, &["endpoint", "status", "-w", "json"]).await;
    let revision = status.split("\"revision\":").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap();
    ctl(&etcd, &["compact", revision]).await;
    ctl(&etcd, &["defrag"]).await;
    let reads = other.counter.counts().reads;
    one.election.stop();
    other.leads().await;
    assert!(other.counter.counts().reads <= reads + 3, "the follower was not notified, but polled");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_login_is_renewed_and_permissions_revoked_in_mid_term_are_reported() {
    let etcd = Arc::new(Etcd::start());
    for command in [
        "user add root:root",
        "user add jobs:secret",
        "role add jobs",
        "role grant-permission jobs readwrite tenure/ --prefix=true",
        "user grant-role jobs jobs",
        "auth enable",
    ] {
        ctl(&etcd, &command.split(' ').collect::<Vec<_>>()).await;
    }
    let detector = OverlapDetector::new();
    let mut one = stand(&format!("etcd://jobs:secret@{}", etcd.addresses()), "one", LONG, &detector);
    let first = one.leads().await;
    let other = stand(&format!("etcd://root:root@{}", etcd.addresses()), "other", LONG, &detector);
    renews_on(&one).await;
    // Setting a password, even the same one, invalidates all tokens of the user.
    let root = "--user=root:root";
    let file = etcd.folder().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let (server, path) = (etcd.clone(), file.clone());
    tokio::task::spawn_blocking(move || set_password(&server, "jobs", &path)).await.unwrap();
    renews_on(&one).await;
    assert!(one.election.is_leader());
    assert_eq!(detector.work_spans(), 1, "an expired login cost the term");

    ctl(&etcd, &[root, "user", "revoke-role", "jobs", "jobs"]).await;
    let (error, lost) = one.is_denied_and_loses().await;
    assert!(error.contains("denied permission") && !error.contains("secret"), "{error}");
    assert_eq!(lost, first);
    acted_above(&detector, first).await;
    ctl(&etcd, &[root, "user", "grant-role", "jobs", "jobs"]).await;
    // A write was denied, so only a write can show that writes work again.
    other.election.stop();
    one.recovers().await;
    one.leads().await;
    detector.acts_do_not_overlap().unwrap();
}

fn set_password(etcd: &Etcd, user: &str, file: &std::path::Path) {
    let command = format!(
        "ETCDCTL_API=3 etcdctl --endpoints {} --user=root:root user passwd {user} --interactive=false < {}",
        etcd.addresses(),
        file.display()
    );
    let done = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
