//! What a network, a cluster and its operator can do to elections: the laws about that, and what only etcd can do.
//! Whatever it is, no two ever work at once: every test ends with that, by the moments at which work was done.

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

/// Long enough for a cluster to find another leader within it.
const LONG: Duration = Duration::from_secs(9);

fn through(proxy: &Proxy) -> String {
    format!("etcd://{}", proxy.address())
}

/// A cluster of one member.
struct Cluster(Etcd);

impl faults::Server for Cluster {
    fn start(_: Wish) -> Self {
        let mut etcd = Etcd::start();
        // A member has a connection to itself, for its gateway, and may be healthy before it is open.
        let port = etcd.members[0].address().rsplit_once(':').unwrap().1.parse().unwrap();
        etcd.members[0].process.wait_until("its gateway is connected", || connections(port) > 0);
        Self(etcd)
    }

    fn address(&self) -> String {
        self.0.members[0].address()
    }

    fn open(&self, address: &str) -> Box<dyn tenure_core::DynStore> {
        Box::new(EtcdStore::from_url(&format!("etcd://{address}")).unwrap())
    }

    /// One each, for calls, heartbeats and news.
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

    /// Heartbeats have no text by which to know them.
    fn renewals(&self) -> &'static [&'static str] {
        &[]
    }
}

mod laws {
    tenure_testkit::faults!(super::Cluster);
}

/// One that takes over only when a leader whose session was ended from outside must have stopped: with
/// `takeover=instant` the two may overlap until the news has arrived, and that is said.
fn stand_safely(url: &str, id: &str, detector: &OverlapDetector) -> TestCandidate {
    stand_with(url, id, LEASE, detector, |election| election.takeover(Takeover::Safe))
}

async fn follows(candidate: &TestCandidate) {
    within("it watches", candidate.counter.wait_for(|counts| counts.looks > 0)).await;
}

async fn renews_on(candidate: &TestCandidate) {
    let renewals = candidate.counter.counts().renewals;
    within("it renews again", candidate.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
}

/// Waits until a term was prolonged by a renewal that was asked for from now on: the first may have been under way.
async fn is_kept(candidate: &TestCandidate) {
    for _ in 0..2 {
        let deadline = || candidate.election.term().map(|term| term.deadline());
        let before = deadline();
        until("it is renewed, or over", || deadline() != before).await;
    }
}

/// Waits until the term of a candidate counts from a moment after this call, or is over.
async fn is_renewed_from_now_on(candidate: &TestCandidate, lease: Duration) {
    let deadline = || candidate.election.term().map(|term| term.deadline());
    // What the leader counts on is a little less than its lease.
    let enough = Clock::system().now() + lease * 98 / 100;
    until("it is renewed, or over", || deadline().is_none_or(|deadline| deadline >= enough)).await;
}

/// Waits until each candidate has one connection, so that no fault has left another behind. Each member has one to itself.
async fn has_one_connection_each(etcd: &Etcd, candidates: usize) {
    let expected = etcd.members.len() + candidates;
    until("each candidate has one connection", || etcd.connections() == expected).await;
}

/// Asks the cluster itself, out of the way of the runtime.
async fn ctl(etcd: &Arc<Etcd>, arguments: &[&str]) -> String {
    let (etcd, arguments): (_, Vec<_>) = (etcd.clone(), arguments.iter().map(ToString::to_string).collect());
    let run = move || etcd.ctl(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.expect("it answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_is_told_that_its_connection_has_ended() {
    // So long that nobody looks by itself while this test waits.
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
        within("it looks again", other.counter.wait_for(|counts| counts.looks > looks)).await;
    }
    // And hears on the new connection.
    one.election.stop();
    other.leads().await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_later_than_a_call_waits_costs_no_term() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let detector = OverlapDetector::new();
    let mut one = stand(&through(&proxy), "one", LONG, &detector);
    one.leads().await;
    let other = stand(&etcd.url(), "other", LONG, &detector);
    follows(&other).await;
    // A call is given up after a fifteenth of the lease. What it has asked still counts for the next one.
    proxy.delay(Way::Down, LONG / 10);
    is_kept(&one).await;
    is_kept(&one).await;
    assert!(one.election.is_leader());
    assert_eq!(detector.work_spans(), 1, "the term was lost");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_clusters_leader_and_a_member_that_hangs_cost_no_term() {
    // A member that led the cluster, was stopped, and goes on later than a lease after the last renewal it knows of, ends
    // the leases that others have kept since, as the promises say. So none is stopped for longer than a part of this.
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
    // A member that does not answer, whichever we are connected to. One at a time: of three, two must be there.
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
async fn a_lost_quorum_ends_the_term_and_when_it_is_back_somebody_leads() {
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
    assert!(!other.election.is_leader(), "it leads by the word of a minority");
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
    assert!(one.counter.counts().renewals <= renewals + 1, "it was not told, but found out");
    assert!(acted_above(&detector, first).await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_deleted_by_an_operator_is_waited_out_and_tokens_go_on_rising() {
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
async fn tokens_rise_above_a_deleted_seat_also_where_bids_have_overtaken_the_revision() {
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
    // Where the revision says enough by itself, nothing is left of a seat that was forgotten.
    another.swap(&seat, None, &record(1)).await.unwrap();
    another.forget(&seat).await.unwrap();
    assert!(another.read(&seat).await.unwrap().floor >= Token::new(1_000_000));
    let other = SeatName::new("other").unwrap();
    another.swap(&other, None, &record(1)).await.unwrap();
    another.forget(&other).await.unwrap();
    assert_eq!(ctl(&etcd, &["get", "--prefix", "--keys-only", "tenure/"]).await.trim(), "tenure/floors/jobs");
}

/// As after a record was written anew and the answer was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_done_by_holder_and_term_whichever_write_of_ours_was_the_last() {
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
    // Another candidate of this process, and another term, are on the same session.
    version(store.swap(&seat, Some(&rewritten), &record(2, 2, 3)).await.unwrap());
    for other in [record(1, 1, 1), record(2, 1, 3), record(1, 2, 3)] {
        assert_eq!(store.renew(&seat, &rewritten, &other).await.unwrap(), Swap::Lost, "{other:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_does_not_keep_news_from_followers() {
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
    assert!(other.counter.counts().reads <= reads + 3, "it was not told, but has looked");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_runs_out_is_renewed_and_rights_revoked_in_mid_term_are_told() {
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
    // To set a password, be it the same one, ends all that was given for it.
    let root = "--user=root:root";
    let file = etcd.folder().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let (server, path) = (etcd.clone(), file.clone());
    tokio::task::spawn_blocking(move || set_password(&server, "jobs", &path)).await.unwrap();
    renews_on(&one).await;
    assert!(one.election.is_leader());
    assert_eq!(detector.work_spans(), 1, "a log-in that ran out has cost the term");

    ctl(&etcd, &[root, "user", "revoke-role", "jobs", "jobs"]).await;
    let (told, lost) = one.is_denied_and_loses().await;
    assert!(told.contains("does not permit this") && !told.contains("secret"), "{told}");
    assert_eq!(lost, first);
    acted_above(&detector, first).await;
    ctl(&etcd, &[root, "user", "grant-role", "jobs", "jobs"]).await;
    // A write was denied, so it takes a write to know that it works again.
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
