//! The example that exports to Prometheus: what a scrape shows of a leader and of a follower.
#![cfg(feature = "metrics")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tenure::Elections;
use tenure::layers::Measured;
use tenure::testing::Memory;

#[path = "../examples/prometheus.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod prometheus;

fn scrape(endpoint: SocketAddr) -> String {
    assert!(tenure::log::flush(Duration::from_secs(60)));
    let mut client = TcpStream::connect(endpoint).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn a_scrape_shows_who_leads_and_how_long_things_take() {
    let metrics = prometheus::install().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap();
    std::thread::spawn(move || prometheus::serve(&listener, &metrics));

    let memory = Memory::new();
    let [first, second] = [(); 2].map(|()| Elections::new(Measured::new(memory.store())));
    let a = first.election("nightly-jobs").candidate("a").start().unwrap();
    a.elected().await.unwrap();
    let b = second.election("nightly-jobs").candidate("b").start().unwrap();
    let mut events = b.events();
    while b.leader().is_none() {
        events.next().await.unwrap();
    }
    let shown = scrape(endpoint);
    let has = |line: &str| assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    has("tenure_is_leader{election=\"nightly-jobs\",candidate=\"a\",store=\"memory\"} 1");
    has("tenure_is_leader{election=\"nightly-jobs\",candidate=\"b\",store=\"memory\"} 0");
    has("tenure_terms_total{election=\"nightly-jobs\",candidate=\"a\",store=\"memory\"} 1");
    has("tenure_overruns_total{election=\"nightly-jobs\",candidate=\"b\",store=\"memory\"} 0");
    has("tenure_store_calls_total{store=\"memory\",call=\"swap\",outcome=\"done\"} 1");
    has("# HELP tenure_is_leader 1 while this candidate leads, otherwise 0");
    has("# TYPE tenure_store_call_seconds histogram");

    a.stop();
    a.stopped().await;
    b.elected().await.unwrap();
    let shown = scrape(endpoint);
    let has = |line: &str| assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    has("tenure_is_leader{election=\"nightly-jobs\",candidate=\"a\",store=\"memory\"} 0");
    has("tenure_is_leader{election=\"nightly-jobs\",candidate=\"b\",store=\"memory\"} 1");
    has("tenure_term_ends_total{election=\"nightly-jobs\",candidate=\"a\",store=\"memory\",why=\"stopped\"} 1");
    has("tenure_hand_over_seconds_count{election=\"nightly-jobs\",candidate=\"b\",store=\"memory\"} 1");
    has("tenure_hand_over_seconds_bucket{election=\"nightly-jobs\",candidate=\"b\",store=\"memory\",le=\"300\"} 1");
    has("tenure_term_seconds_bucket{election=\"nightly-jobs\",candidate=\"a\",store=\"memory\",le=\"7776000\"} 1");
}
