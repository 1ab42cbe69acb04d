//! Faults of the network and the server: the laws about faults, and losses that only a cache has. By the timestamps of
//! the work, no two leaders overlap, except where the promise says that they can.

mod support;

use std::time::Duration;

use support::{acted_above, open, record, seat, stand, within};
use tenure_core::{DynStore, EndReason, SeatStore, Swap};
use tenure_memcached::MemcachedStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{Memcached, MemcachedSetup};

const LEASE: Duration = Duration::from_secs(2);

struct Server(Memcached);

impl faults::Server for Server {
    fn start(_: Wish) -> Self {
        Self(Memcached::start())
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        Box::new(MemcachedStore::from_url(&format!("memcached://{address}")).unwrap())
    }

    fn connections(&self, processes: usize) -> usize {
        processes
    }

    fn pause(&mut self) {
        self.0.pause();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn restart(&mut self) {
        self.0.restart();
    }

    fn keeps_data(&self) -> bool {
        false
    }

    /// The floor of an absent seat is the host's time, which is above all tokens that the seat ever had.
    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::AllTokensRise)
    }

    fn restart_empty(&mut self) {
        self.0.restart();
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn many_candidates(&self) -> usize {
        200
    }
}

mod laws {
    tenure_testkit::faults!(super::Server);
}

#[tokio::test(flavor = "multi_thread")]
async fn candidates_that_have_seen_the_seat_wait_a_lease_after_a_flush_and_tokens_rise() {
    let (server, detector) = (Memcached::start(), OverlapDetector::new());
    let mut one = stand(&server.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    let other = stand(&server.url(), "other", LEASE, &detector);
    within("the follower has read the seat", other.counter.wait_for(|counts| counts.looks > 0)).await;
    assert_eq!(server.ask("flush_all"), "OK");
    assert_eq!(one.loses().await, (first, EndReason::SeatVanished));
    assert!(acted_above(&detector, first).await > first);
    detector.acts_do_not_overlap().unwrap();
}

/// What the promise admits: a candidate that has never seen the seat bids at once. A resource tells the two leaders apart
/// by their tokens, and the old leader stops at its next renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_starts_just_after_a_flush_has_a_higher_token_and_the_old_leader_stops() {
    let (server, detector) = (Memcached::start(), OverlapDetector::new());
    let mut one = stand(&server.url(), "one", LEASE, &detector);
    let first = one.leads().await;
    assert_eq!(server.ask("flush_all"), "OK");
    let mut newcomer = stand(&server.url(), "newcomer", LEASE, &detector);
    let second = newcomer.leads().await;
    assert!(second > first, "{second} after {first}");
    assert_eq!(one.loses().await.0, first);
    let renewals = newcomer.counter.counts().renewals;
    within("the new leader renews", newcomer.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert!(newcomer.election.is_leader() && !one.election.is_leader(), "there is one leader again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_seat_is_reported_as_vanished() {
    // One megabyte, so that a few large values evict everything that is not used meanwhile.
    let server = MemcachedSetup::new().with(["-m", "1", "-I", "512k"]).start();
    let detector = OverlapDetector::new();
    let mut one = stand(&server.url(), "one", Duration::from_secs(6), &detector);
    let first = one.leads().await;
    let size = server.ask("mg tenure:jobs s").split_once('s').and_then(|(_, size)| size.parse::<usize>().ok()).unwrap();
    let value = "x".repeat(size);
    let mut number = 0;
    // Unlike `mg`, `me` does not make the seat look recently used.
    while server.ask("me tenure:jobs") != "EN" {
        // Values of the same size are in the same class as the seat, in which the server evicts the oldest.
        (0..200).for_each(|more| drop(server.ask(&format!("ms junk-{number}-{more} {size}\r\n{value}"))));
        number += 1;
        assert!(number < 400, "the server evicts nothing");
    }
    assert_eq!(one.loses().await, (first, EndReason::SeatVanished));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_from_before_a_restart_never_matches_although_cas_values_repeat() {
    let mut server = Memcached::start();
    let store = open(&server.url());
    let Swap::Done { version: old, .. } = store.swap(&seat(), None, &record(7)).await.unwrap() else { panic!() };
    server.restart();
    // The new process counts its CAS values from the beginning: the same calls lead to the same value.
    let other = open(&server.url());
    let Swap::Done { version: new, .. } = other.swap(&seat(), None, &record(8)).await.unwrap() else { panic!() };
    assert_eq!(server.ask("mg tenure:jobs c"), "HD c2", "the values do not repeat, so this test shows nothing");
    // The first call on the lost connection may fail.
    let _ = SeatStore::read(&store, &seat()).await;
    assert_eq!(store.swap(&seat(), Some(&old), &record(9)).await.unwrap(), Swap::Lost);
    assert!(matches!(other.renew(&seat(), &new, &record(8)).await.unwrap(), Swap::Done { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_revoked_in_mid_term_ends_the_term_and_another_candidate_takes_over() {
    let mut server = MemcachedSetup::new().login("one:hunter1\nother:hunter2").start();
    let (proxy, detector) = (Proxy::start(server.address()), OverlapDetector::new());
    let mut one = stand(&format!("memcached://one:hunter1@{}", proxy.address()), "one", LEASE, &detector);
    let first = one.leads().await;
    let mut other = stand(&format!("memcached://other:hunter2@{}", server.address()), "other", LEASE, &detector);
    other.knows(first).await;
    server.set_login("other:hunter2");
    let revoked = format!("memcached://one:hunter1@{}", server.address());
    let is_valid = async || SeatStore::read(&open(&revoked), &seat()).await.is_ok();
    within("the server has read its log-ins", async { while is_valid().await {} }).await;
    // The server checks a log-in only when a connection is opened.
    proxy.reset();
    let (error, lost) = one.is_denied_and_loses().await;
    assert!(error.contains("rejected the user or the password") && !error.contains("hunter"), "{error}");
    assert_eq!(lost, first);
    acted_above(&detector, first).await;
    detector.acts_do_not_overlap().unwrap();
}

/// A firewall that forgets a connection drops its packets without a word.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_is_replaced_even_at_the_time_out_of_the_shortest_lease() {
    let server = Memcached::start();
    let proxy = Proxy::start(server.address());
    let store = open(&format!("memcached://{}", proxy.address()));
    within("the read is answered", SeatStore::read(&store, &seat())).await.unwrap();
    proxy.freeze();
    let time_out = SeatStore::promises(&store).min_lease / 15;
    let mut calls = 0;
    while tokio::time::timeout(time_out, SeatStore::read(&store, &seat())).await.is_err() {
        calls += 1;
        assert!(calls < 100, "after {calls} calls that timed out, the store still uses the connection");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_of_a_deleted_seat_is_lost_and_does_not_create_it_again() {
    let server = Memcached::start();
    let store = open(&server.url());
    let Swap::Done { version, .. } = store.swap(&seat(), None, &record(7)).await.unwrap() else { panic!() };
    assert_eq!(server.ask("md tenure:jobs"), "HD");
    assert_eq!(store.renew(&seat(), &version, &record(7)).await.unwrap(), Swap::Lost);
    assert_eq!(server.ask("mg tenure:jobs"), "EN", "the renewal created the seat again");
}
