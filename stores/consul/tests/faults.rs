//! Faults of a network, servers and operators: the laws about them, and cases that are special to Consul. Every
//! test ends by checking that no two candidates ever worked at once, by comparing the moments of their work.

mod support;

use std::time::{Duration, Instant};

use support::{LEASE, SEAT, acted_above, leading, stand, stand_with, until, within};
use tenure_consul::ConsulStore;
use tenure_core::{EndReason, EventKind, Takeover, Token};
use tenure_testkit::OverlapDetector;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{Consul, ConsulCluster, ConsulSetup};

/// The maximum number of connections of a candidate.
const CONNECTIONS: usize = 6;

/// A server that keeps its data on disk.
struct Server(Consul);

impl faults::Server for Server {
    fn start(_: Wish) -> Self {
        Self(ConsulSetup::new().durable().start())
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn tenure_core::DynStore> {
        Box::new(ConsulStore::from_url(&format!("consul://{address}/tenure?min_lease=1s")).unwrap())
    }

    fn connections(&self, processes: usize) -> usize {
        CONNECTIONS * processes
    }

    fn pause(&mut self) {
        self.0.pause();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn restart(&mut self) {
        self.0.kill();
        self.0.restart();
    }

    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.0.restart_empty();
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn bid(&self) -> &'static str {
        "\"Verb\":\"lock\",\"Key\":\"tenure/seats/"
    }

    /// The heartbeat of the session, and the check that it still has the locks of all seats.
    fn renewals(&self) -> &'static [&'static str] {
        &["/v1/session/renew/", "keys&separator"]
    }
}

mod laws {
    tenure_testkit::faults!(super::Server);
}

/// Waits until no candidate has more connections than it needs: no fault left any open.
async fn has_few_connections(servers: &[&Consul], candidates: usize) {
    let few = || servers.iter().map(|server| server.connections()).sum::<usize>() <= CONNECTIONS * candidates;
    until("each candidate has few connections", few).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_whose_connection_falls_silent_is_replaced_within_a_third_of_a_lease() {
    let lease = Duration::from_secs(18);
    let consul = Consul::start();
    let proxy = Proxy::start(consul.address());
    let detector = OverlapDetector::new();
    let mut leader = stand_with(&consul.url(), "leader", &detector, |election| election.lease(lease));
    let first = leader.leads().await;
    let through = format!("consul://{}/tenure?min_lease=1s", proxy.address());
    let mut follower = stand_with(&through, "follower", &detector, |election| election.lease(lease));
    follower.knows(first).await;
    // The watch must be established before it can fall silent.
    proxy.quiet(Duration::from_secs(1)).await;
    assert!(proxy.freeze_after("&wait="), "the follower does not watch");
    leader.election.stop();
    leader.stopped().await;
    // A third of the lease, and half as much again for a busy machine.
    let leads = tokio::time::timeout(lease / 2, follower.leads()).await;
    assert!(leads.is_ok(), "the follower relied on a watch that had fallen silent");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_server_lost_all_data_the_next_token_is_higher() {
    let mut consul = Consul::start();
    let detector = OverlapDetector::new();
    // Raises the index above the one that a new server starts with.
    for number in 0..40 {
        consul.ask("PUT", &format!("/v1/kv/other/{number}"), "x");
    }
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &detector));
    let first = acted_above(&detector, Token::ZERO).await;
    for one in &mut candidates {
        one.knows(Token::ZERO).await;
    }
    let identity = consul.entry("tenure/identity", "Value");
    consul.restart();
    let second = acted_above(&detector, first).await;
    assert_ne!(consul.entry("tenure/identity", "Value"), identity);
    // If the seat is deleted now, the floor is still above all earlier tokens.
    for one in &candidates {
        one.election.stop();
        within("the election stops", one.election.stopped()).await;
    }
    consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), "");
    let mut newcomer = stand(&consul.url(), "newcomer", &detector);
    assert!(newcomer.leads().await > second, "a token was reused");
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ended_by_an_operator_ends_the_term_at_once() {
    let consul = Consul::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&consul.url(), "one", &detector);
    let first = one.leads().await;
    let mut other = stand(&consul.url(), "other", &detector);
    other.knows(Token::ZERO).await;
    let renewals = one.counter.counts().renewals;
    consul.destroy_session_of(SEAT);
    assert_eq!(one.loses().await, (first, EndReason::SessionOver));
    // The watch notified the leader; it did not find out by a failed heartbeat.
    assert!(one.counter.counts().renewals <= renewals + 1);
    acted_above(&detector, first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_takeover_safe_the_seat_stays_free_for_a_lease_after_its_session_was_ended() {
    let consul = Consul::start();
    let detector = OverlapDetector::new();
    let url = format!("{}&takeover=safe", consul.url());
    let mut one = stand(&url, "one", &detector);
    let first = one.leads().await;
    // This candidate has `takeover=instant`, but Consul's lock-delay still keeps it from the seat.
    let mut other = stand_with(&url, "other", &detector, |election| election.takeover(Takeover::Instant));
    other.knows(Token::ZERO).await;
    let ended = Instant::now();
    consul.destroy_session_of(SEAT);
    assert_eq!(one.loses().await, (first, EndReason::SessionOver));
    acted_above(&detector, first).await;
    assert!(ended.elapsed() >= LEASE, "the seat was taken after {:?}", ended.elapsed());
    // The lock-delay is not reported as an error of the store, although both candidates have bid during it.
    for candidate in [&mut one, &mut other] {
        candidate
            .event("the candidate knows the new leader", |event| match event {
                EventKind::Error { error } => panic!("reported as an error: {error}"),
                EventKind::LeaderChanged { leader: Some(leader), .. } if leader.token > first => Some(()),
                _ => None,
            })
            .await;
    }
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_deleted_in_mid_term_causes_no_second_leader_and_tokens_rise() {
    let consul = Consul::start();
    let detector = OverlapDetector::new();
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &detector));
    let first = acted_above(&detector, Token::ZERO).await;
    for one in &mut candidates {
        one.knows(Token::ZERO).await;
    }
    consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), "");
    acted_above(&detector, first).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_an_operator_overwrites_gets_a_leader_again() {
    let consul = Consul::start();
    let detector = OverlapDetector::new();
    let mut one = stand(&consul.url(), "one", &detector);
    let first = one.leads().await;
    let mut other = stand(&consul.url(), "other", &detector);
    other.knows(first).await;
    let record = consul.ask("GET", &format!("/v1/kv/{SEAT}?raw"), "").1;
    let (before, rest) = record.split_once("\"incarnation\":\"").expect("the seat is held");
    let another = format!("{before}\"incarnation\":\"{}{}", "7".repeat(32), &rest[32..]);
    // A plain write leaves the lock with the session of the old leader.
    consul.ask("PUT", &format!("/v1/kv/{SEAT}"), &another);
    assert_ne!(consul.entry(SEAT, "Session"), "");
    assert_eq!(one.loses().await, (first, EndReason::SeatLost));
    assert!(acted_above(&detector, first).await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_snapshot_causes_no_second_leader_and_the_watch_continues() {
    let consul = Consul::start();
    let detector = OverlapDetector::new();
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &detector));
    let mut token = acted_above(&detector, Token::ZERO).await;
    for one in &mut candidates {
        one.knows(Token::ZERO).await;
    }
    let file = consul.folder().join("snapshot").display().to_string();
    consul.command(&["snapshot", "save", &file]);
    for _ in 0..2 {
        candidates.iter().for_each(|one| one.election.step_down());
        token = acted_above(&detector, token).await;
    }
    // All candidates know the current index before it goes backwards.
    tokio::time::sleep(LEASE / 3).await;
    consul.command(&["snapshot", "restore", &file]);
    token = acted_above(&detector, token).await;
    candidates.iter().for_each(|one| one.election.step_down());
    acted_above(&detector, token).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pausing_or_killing_the_leading_server_causes_no_second_leader() {
    let mut cluster = ConsulCluster::start();
    let detector = OverlapDetector::new();
    let candidates = ["one", "other"].map(|id| stand(&cluster.url(), id, &detector));
    let mut token = acted_above(&detector, Token::ZERO).await;
    for kill in [false, true] {
        let leader = cluster.leader();
        if kill {
            cluster.servers[leader].kill();
        } else {
            cluster.servers[leader].pause();
        }
        // The term may survive. Whichever candidate leads then does so on the remaining servers.
        tokio::time::sleep(LEASE * 2).await;
        leading(&candidates).await;
        if kill {
            cluster.servers[leader].restart();
        } else {
            cluster.servers[leader].resume();
        }
        let leading = candidates.iter().find_map(|one| one.election.term());
        if let Some(term) = leading {
            assert!(term.token() >= token, "token {} after {token}", term.token());
            token = term.token();
        }
    }
    has_few_connections(&cluster.servers.iter().collect::<Vec<_>>(), 2).await;
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_no_candidate_leads_and_one_does_once_it_is_back() {
    let mut cluster = ConsulCluster::start();
    let detector = OverlapDetector::new();
    let mut candidates = ["one", "other"].map(|id| stand(&cluster.url(), id, &detector));
    let first = acted_above(&detector, Token::ZERO).await;
    let leader = cluster.leader();
    cluster.servers.iter_mut().enumerate().filter(|(number, _)| *number != leader).for_each(|(_, one)| one.pause());
    let holder = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
    assert_eq!(holder.loses().await, (first, EndReason::NotRenewed));
    assert!(candidates.iter().all(|one| !one.election.is_leader()));
    cluster.servers.iter_mut().for_each(Consul::resume);
    acted_above(&detector, first).await;
    has_few_connections(&cluster.servers.iter().collect::<Vec<_>>(), 2).await;
    detector.acts_do_not_overlap().unwrap();
}
