//! Figures of elections over an etcd server on this machine: how soon a leader is followed, and what a thousand
//! elections in one process cost.
//!
//!   scripts/bench etcd        TENURE_BENCH_SECONDS=60 is how long the thousand run

use std::time::{Duration, Instant};

use tenure_core::{Election, Elections, Event};
use tenure_etcd::EtcdStore;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::Etcd;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let etcd = Etcd::start();
        graceful(&etcd).await;
        after_a_crash(&etcd).await;
        a_thousand(&etcd).await;
    });
}

fn stand(url: &str, name: &str, lease: Duration) -> (Elections, Election) {
    let elections = Elections::new(EtcdStore::from_url(url).unwrap());
    let election = elections.election(name).lease(lease).start().unwrap();
    (elections, election)
}

/// From `stop()` of a leader without work to the next one's term.
async fn graceful(etcd: &Etcd) {
    let mut spans = Vec::new();
    let mut leader = stand(&etcd.url(), "graceful", Duration::from_secs(15));
    leader.1.elected().await.unwrap();
    for _ in 0..100 {
        let next = stand(&etcd.url(), "graceful", Duration::from_secs(15));
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // It has settled down, and waits.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.unwrap();
        spans.push(began.elapsed());
        leader = next;
    }
    show("a leader that stops is followed after", &mut spans);
}

/// From the end of the lease, counted from the last keep-alive before the leader was cut off, to the next one's
/// term. etcd looks for leases that are over twice a second.
async fn after_a_crash(etcd: &Etcd) {
    let lease = Duration::from_secs(2);
    let rounds = (0..10).map(|round| async move {
        let name = format!("crash-{round}");
        let proxy = Proxy::start(etcd.members[0].address());
        let leader = stand(&format!("etcd://{}", proxy.address()), &name, lease);
        leader.1.elected().await.unwrap();
        let next = stand(&etcd.url(), &name, lease);
        // At any point between two renewals.
        tokio::time::sleep(Duration::from_millis(1000 + 71 * round)).await;
        proxy.black_hole(Way::Up);
        let renewed = leader.1.last_renewal().unwrap();
        next.1.elected().await.unwrap();
        renewed.elapsed().unwrap().saturating_sub(lease)
    });
    let mut spans = futures_util::future::join_all(rounds).await;
    show("a leader that is gone is followed, past the end of its lease, after", &mut spans);
}

async fn a_thousand(etcd: &Etcd) {
    let seconds: u64 = std::env::var("TENURE_BENCH_SECONDS").map_or(60, |text| text.parse().unwrap());
    let elections = Elections::new(EtcdStore::from_url(&etcd.url()).unwrap());
    let memory = resident();
    let mut all = Vec::new();
    let began = Instant::now();
    for number in 0..1000 {
        let election = elections.election(format!("many-{number}")).lease(Duration::from_secs(3)).start().unwrap();
        all.push((election.events(), election));
    }
    for (_, election) in &all {
        election.elected().await.unwrap();
    }
    println!("1000 elections were won within {:.2?}", began.elapsed());
    let asked = |method: &str| etcd.metric(&format!("grpc_server_started_total{{grpc_method=\"{method}\"")) as u64;
    let (before, cpu) = ((asked("LeaseKeepAlive"), asked("Txn"), asked("Range")), processor());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, cpu) = ((asked("LeaseKeepAlive"), asked("Txn"), asked("Range")), processor() - cpu);
    let mut lost = 0;
    for (events, _) in &mut all {
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
            lost += u64::from(matches!(event, Event::LostLeadership { .. }));
        }
    }
    let leading = all.iter().filter(|(_, election)| election.is_leader()).count();
    let rate = |before: u64, after: u64| (after - before) as f64 / seconds as f64;
    println!("1000 elections, lease 3 s, {seconds} s: {leading} lead, {lost} terms lost");
    println!(
        "   {:.1} keep-alives/s, {:.1} transactions/s, {:.1} ranges/s, no writes; {:.2} CPU-s per 30 s, {:.1} MB more than before",
        rate(before.0, after.0),
        rate(before.1, after.1),
        rate(before.2, after.2),
        cpu / seconds as f64 * 30.0,
        resident().saturating_sub(memory) as f64 / 1e6
    );
}

fn show(what: &str, spans: &mut [Duration]) {
    spans.sort();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}, most {:.2?} ({} times)", at(50), at(99), at(100), spans.len());
}

/// Seconds of processor that this process has used.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
