//! What a network and a cluster can do to elections. Whatever it is, no two ever work at once: every
//! test ends with that, by the moments at which work was done.

mod support;

use std::time::{Duration, Instant};

use support::gate::Gate;
use support::{acted_above, stand, until, url, within};
use tenure_core::{Token, Why};
use tenure_testkit::Desk;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Kubernetes, connections};

/// A fifteenth of it must do for a call, on a busy machine.
const LEASE: Duration = Duration::from_secs(3);

/// A candidate keeps a connection for its watch and one for each call that it has had under way at the same time.
const CONNECTIONS: usize = 6;

const ALL: &[&str] = &["create", "update", "delete", "list", "watch"];

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_black_holed_stops_before_another_starts() {
    let server = Kubernetes::shared();
    for way in [Way::Up, Way::Down] {
        let namespace = server.namespace();
        let proxy = Proxy::start(server.address());
        let through = server.kubeconfig_by(&namespace, &format!("https://{}", proxy.address()));
        let desk = Desk::new();
        let mut one = stand(&url(through), "one", LEASE, &desk);
        let first = one.leads().await;
        let mut other = stand(&url(server.kubeconfig(&namespace)), "other", LEASE, &desk);
        other.knows(first).await;
        proxy.black_hole(way);
        assert_eq!(one.loses().await.0, first);
        let second = acted_above(&desk, first).await;
        proxy.pass();
        one.knows(second).await;
        few_connections(&proxy.address()).await;
        desk.acts_do_not_overlap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_leave_no_connections_behind() {
    let server = Kubernetes::shared();
    let proxy = Proxy::start(server.address());
    let through = server.kubeconfig_by(&server.namespace(), &format!("https://{}", proxy.address()));
    let mut one = stand(&url(through), "one", LEASE, &Desk::new());
    one.leads().await;
    few_connections(&proxy.address()).await;
    for way in [Way::Up, Way::Down, Way::Up, Way::Down] {
        proxy.black_hole(way);
        one.fails().await;
        let reads = one.counter.counts().reads;
        within("it tries again", one.counter.wait_for(|counts| counts.reads >= reads + 4)).await;
        proxy.pass();
        one.recovers().await;
        few_connections(&proxy.address()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winning_write_whose_reply_is_lost_is_a_term_all_the_same() {
    let lease = Duration::from_secs(15);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let proxy = Proxy::start(gate.address().to_string());
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", proxy.address()));
    proxy.drop_reply_to("POST /apis/");
    let desk = Desk::new();
    let began = Instant::now();
    let mut one = stand(&url(through), "one", lease, &desk);
    let token = one.leads().await;
    assert!(began.elapsed() < lease, "it was locked out of its own seat");
    within("the reply was dropped", proxy.caught(1)).await;
    let seat = server.must("GET", &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs"), "");
    assert!(seat.contains(&format!(r#"\"token\":{token},"#)), "the seat names another term than {token}: {seat}");
    acted_above(&desk, Token::ZERO).await;
    assert_eq!(desk.sittings(), 1);
    few_connections(&proxy.address()).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_reset_during_renewals_cost_no_term() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let proxy = Proxy::start(server.address());
    let through = server.kubeconfig_by(&namespace, &format!("https://{}", proxy.address()));
    let desk = Desk::new();
    let mut one = stand(&url(through), "one", LEASE * 2, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(server.kubeconfig(&namespace)), "other", LEASE * 2, &desk);
    other.knows(first).await;
    for round in 0..4 {
        let renewals = one.counter.counts().renewals;
        proxy.reset();
        within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals)).await;
        assert!(one.election.is_leader() && !other.election.is_leader(), "lost in round {round}");
        few_connections(&proxy.address()).await;
    }
    assert_eq!(desk.sittings(), 1, "the term was lost");
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_cut_is_taken_up_again_and_hears_of_a_release() {
    let lease = Duration::from_secs(60);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let proxy = Proxy::start(gate.address().to_string());
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", proxy.address()));
    let desk = Desk::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", lease, &desk);
    other.knows(first).await;
    for cuts in 1..4 {
        until("it watches", || gate.count("GET", "watch=1") >= cuts).await;
        proxy.reset();
    }
    until("it watches again", || gate.count("GET", "watch=1") >= 4).await;
    let began = Instant::now();
    one.election.stop();
    other.leads().await;
    // Nobody looks before a third of a lease has passed.
    assert!(began.elapsed() < lease / 3, "it was not told");
    few_connections(&proxy.address()).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_hangs_is_noticed_and_made_anew() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", gate.address()));
    let desk = Desk::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", LEASE, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", LEASE, &desk);
    other.knows(first).await;
    until("it watches", || gate.count("GET", "watch=1") >= 1).await;
    gate.mute(true);
    until("it watches anew", || gate.count("GET", "watch=1") >= 3).await;
    gate.mute(false);
    assert_eq!(desk.sittings(), 1, "the term was lost");
    one.election.stop();
    other.leads().await;
    few_connections(&gate.address()).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_place_the_server_has_forgotten_begins_with_another_list() {
    let lease = Duration::from_secs(60);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let gate = Gate::before(&server).await;
    let through = server.kubeconfig_by(&namespace, &format!("http://{}", gate.address()));
    let desk = Desk::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(through), "other", lease, &desk);
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
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revoked_in_mid_term_is_told_and_another_takes_over() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let token = server.service_account(&namespace, "jobs", ALL);
    let kubeconfig = server.kubeconfig_of(&token, &namespace, &format!("https://{}", server.address()));
    let desk = Desk::new();
    let mut one = stand(&url(&kubeconfig), "one", LEASE, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(server.kubeconfig(&namespace)), "other", LEASE, &desk);
    other.knows(first).await;
    server.revoke(&namespace, "jobs");
    let (told, lost) = one.is_denied_and_loses().await;
    assert!(told.contains("does not know who we are (401)") && !told.contains(&token), "{told}");
    assert_eq!(lost, first);
    let second = acted_above(&desk, first).await;
    // Another token in the same file lets it in again: it can write, and so leads when the other has left.
    std::fs::copy(server.kubeconfig(&namespace), &kubeconfig).unwrap();
    other.election.stop();
    one.recovers().await;
    assert!(one.leads().await > second);
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_deleted_by_an_operator_is_waited_out_and_tokens_go_on_rising() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let desk = Desk::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", LEASE, &desk);
    let mut first = one.leads().await;
    let mut other = stand(&url(server.kubeconfig(&namespace)), "other", LEASE, &desk);
    other.knows(first).await;
    for _ in 0..2 {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
        server.must("DELETE", &path, "");
        let second = acted_above(&desk, first).await;
        assert!(second > first);
        first = second;
    }
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_seat_is_deleted_or_given_to_another_by_hand_ends_at_once() {
    // So long that no renewal is due while this is tested.
    let lease = Duration::from_secs(240);
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
    let desk = Desk::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &desk);
    let first = one.leads().await;
    let renewals = one.counter.counts().renewals;
    server.must("DELETE", &path, "");
    assert_eq!(one.loses().await, (first, Why::SeatVanished));
    assert_eq!(one.counter.counts().renewals, renewals, "it has waited for its next renewal");
    one.election.stop();
    within("it stops", one.election.stopped()).await;

    // A candidate that has never seen the seat has a higher token all the same.
    let mut fresh = stand(&url(server.kubeconfig(&namespace)), "fresh", lease, &desk);
    let second = fresh.leads().await;
    assert!(second > first, "{second} after {first}");
    let renewals = fresh.counter.counts().renewals;
    let mut edited: serde_json::Value = serde_json::from_str(&server.must("GET", &path, "")).unwrap();
    edited["spec"]["holderIdentity"] = "somebody".into();
    server.must("PUT", &path, &edited.to_string());
    assert_eq!(fresh.loses().await.0, second);
    assert_eq!(fresh.counter.counts().renewals, renewals, "it has waited for its next renewal");
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_make_a_deleted_seat_anew() {
    use tenure_core::{Record, SeatName, SeatStore, Swap};
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let store = tenure_kubernetes::KubernetesStore::from_url(&url(server.kubeconfig(&namespace))).unwrap();
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
    let desk = Desk::new();
    let candidates: Vec<_> = (0..40).map(|n| stand(&url(&kubeconfig), &format!("c{n}"), lease, &desk)).collect();
    let mut token = Token::ZERO;
    for _ in 0..4 {
        token = acted_above(&desk, token).await;
        let leaders: Vec<_> = candidates.iter().filter(|candidate| candidate.election.is_leader()).collect();
        assert!(leaders.len() <= 1, "{} lead at once", leaders.len());
        leaders.iter().for_each(|leader| leader.election.stop());
    }
    desk.acts_do_not_overlap().unwrap();
}

/// All that is done to a whole server, one after the other: it takes its time to come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_paused_or_cannot_write_makes_no_second_leader() {
    let mut server = Kubernetes::start();
    let namespace = server.namespace();
    let kubeconfig = server.kubeconfig(&namespace);

    // Killed, and back within a lease: no term is lost.
    let desk = Desk::new();
    let lease = Duration::from_secs(45);
    let mut one = stand(&url(&kubeconfig), "one", lease, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(&kubeconfig), "other", lease, &desk);
    other.knows(first).await;
    server.api.kill();
    server.start_again();
    let renewals = one.counter.counts().renewals;
    within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals)).await;
    assert_eq!(desk.sittings(), 1, "the term was lost");
    one.election.stop();
    other.leads().await;
    other.election.stop();
    within("it stops", other.election.stopped()).await;
    desk.acts_do_not_overlap().unwrap();

    // The server has connections of its own, too.
    let port = port(&server.address());
    let before = connections(port);

    // Paused for a moment, and then for longer than a lease.
    let desk = Desk::new();
    let mut one = stand(&url(&kubeconfig), "one", LEASE, &desk);
    let first = one.leads().await;
    let mut other = stand(&url(&kubeconfig), "other", LEASE, &desk);
    other.knows(first).await;
    server.api.pause();
    tokio::time::sleep(LEASE / 5).await;
    server.api.resume();
    let renewals = one.counter.counts().renewals;
    within("it renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert_eq!(desk.sittings(), 1, "a pause cost the term");
    server.api.pause();
    assert_eq!(one.loses().await.0, first);
    server.api.resume();
    let second = acted_above(&desk, first).await;

    // Killed, and back only after a lease.
    server.api.kill();
    until("nobody leads", || !one.election.is_leader() && !other.election.is_leader()).await;
    server.start_again();
    let third = acted_above(&desk, second).await;

    // The store behind it stops: the server is there, and cannot do anything.
    server.etcd.pause();
    until("nobody leads", || !one.election.is_leader() && !other.election.is_leader()).await;
    server.etcd.resume();
    acted_above(&desk, third).await;
    until("no connections are left behind", || connections(port) <= before + 2 * CONNECTIONS).await;
    desk.acts_do_not_overlap().unwrap();
}

/// Waits until there are no more connections to an address than one candidate needs.
async fn few_connections(address: &impl ToString) {
    let port = port(&address.to_string());
    until("no connections are left behind", || connections(port) <= CONNECTIONS).await;
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}
