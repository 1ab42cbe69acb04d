//! Benchmarks on a Consul server on this machine: how long a takeover takes, and what a thousand elections in
//! one process cost.
//!
//!   scripts/bench consul       TENURE_BENCH_SECONDS=30 sets how long the thousand elections run
//!                              TENURE_BENCH_ROUNDS=200 sets the number of takeovers

use std::time::{Duration, Instant};

use tenure_consul::ConsulStore;
use tenure_core::{Election, Elections, EventKind};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Consul, ConsulCluster};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let consul = Consul::start();
        graceful("one server", &consul.url()).await;
        after_a_crash(&consul).await;
        a_thousand(&consul).await;
        drop(consul);
        let cluster = ConsulCluster::start();
        graceful("three servers", &cluster.url()).await;
    });
}

fn stand(url: &str, name: &str, lease: Duration) -> (Elections, Election) {
    let elections = Elections::new(ConsulStore::from_url(url).unwrap());
    let election = elections.election(name).lease(lease).start().unwrap();
    (elections, election)
}

/// Measures the time from `stop()` of a leader without work to the next term.
async fn graceful(servers: &str, url: &str) {
    let mut spans = Vec::new();
    let mut leader = stand(url, "graceful", Duration::from_secs(15));
    leader.1.elected().await.unwrap();
    for _ in 0..number("TENURE_BENCH_ROUNDS", 200) {
        let next = stand(url, "graceful", Duration::from_secs(15));
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // By then its session exists, and its blocking query waits.
        tokio::time::sleep(Duration::from_millis(25)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.unwrap();
        spans.push(began.elapsed());
        leader = next;
    }
    show(&format!("{servers}: a leader that stops is followed after"), &mut spans);
}

/// Measures the time from twice the lease after the last possible heartbeat of the leader to the next term.
async fn after_a_crash(consul: &Consul) {
    let lease = Duration::from_secs(1);
    let mut rounds = Vec::new();
    for round in 0..10 {
        let url = consul.url();
        rounds.push(async move {
            let name = format!("crash-{round}");
            let proxy = Proxy::start(consul.address());
            let leader = stand(&format!("consul://{}/tenure?min_lease=1s", proxy.address()), &name, lease);
            leader.1.elected().await.unwrap();
            let next = stand(&url, &name, lease);
            while next.1.leader().is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tokio::time::sleep(Duration::from_millis(u64::from(rand::random::<u8>()))).await;
            let began = Instant::now();
            proxy.black_hole(Way::Up);
            next.1.elected().await.unwrap();
            began.elapsed()
        });
    }
    let mut spans = futures_util::future::join_all(rounds).await;
    show("a leader with a lease of 1 s that is gone is followed after", &mut spans);
}

async fn a_thousand(consul: &Consul) {
    let seconds = number("TENURE_BENCH_SECONDS", 30);
    let elections = Elections::new(ConsulStore::from_url(&consul.url()).unwrap());
    let memory = resident();
    let mut all = Vec::new();
    let began = Instant::now();
    for number in 0..1000 {
        let election = elections.election(format!("many-{number}")).lease(Duration::from_secs(15)).start().unwrap();
        all.push((election.events(), election));
    }
    for (_, election) in &all {
        election.elected().await.unwrap();
    }
    println!("1000 elections of one process all lead after {:.2?}", began.elapsed());
    let (renewed, cpu) = (consul.count("PUT", "/v1/session/renew/_"), processor());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (renewed, cpu) = (consul.count("PUT", "/v1/session/renew/_") - renewed, processor() - cpu);
    let mut lost = 0;
    for (events, _) in &mut all {
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            lost += u64::from(matches!(event.kind, EventKind::LostLeadership { .. }));
        }
    }
    let leading = all.iter().filter(|(_, election)| election.is_leader()).count();
    println!("1000 elections, lease 15 s, {seconds} s: {leading} lead, {lost} terms lost");
    println!(
        "   {renewed} renewals of the session, {:.2} CPU-s per 30 s, {:.1} MB more than before",
        cpu / seconds as f64 * 30.0,
        (resident() - memory) as f64 / 1e6
    );
    assert_eq!(lost, 0, "terms were lost though nothing was wrong");
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

fn show(what: &str, spans: &mut [Duration]) {
    spans.sort();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}, most {:.2?} ({} times)", at(50), at(99), at(100), spans.len());
}

/// Returns the CPU seconds that this process has used.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
