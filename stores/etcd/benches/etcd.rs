//! Benchmarks on an etcd server on this machine: how long a takeover takes, and what a thousand elections in
//! one process cost.
//!
//!   scripts/bench etcd        TENURE_BENCH_SECONDS=60 sets how long the thousand elections run

use std::time::{Duration, Instant};

use tenure_core::Elections;
use tenure_etcd::EtcdStore;
use tenure_testkit::figures::{BenchTarget, EtcdTarget, Open, beside_a_load, hand_over, many_elections_child, show};
use tenure_testkit::proxy::{Proxy, Way};

const OPEN: Open = |url| Box::new(EtcdStore::from_url(url).expect("a valid URL"));

fn main() {
    if many_elections_child(OPEN) {
        return;
    }
    let target = EtcdTarget::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        hand_over::graceful(&target, OPEN).await;
        past_the_end_of_a_lease(&target).await;
    });
    beside_a_load(&target);
}

/// Measures the time from the end of the old leader's lease to the next term. The lease counts from the moment at which
/// the leader was cut off, which is no earlier than its last keep-alive. etcd ends expired leases twice a second.
async fn past_the_end_of_a_lease(target: &EtcdTarget) {
    let lease = Duration::from_secs(2);
    let stand = |url: &str, name: &str| {
        let elections = Elections::new(EtcdStore::from_url(url).unwrap());
        let election = elections.election(name).lease(lease).start().unwrap();
        (elections, election)
    };
    let rounds = (0..10).map(|round| async move {
        let name = format!("crash-{round}");
        let proxy = Proxy::start(target.address().expect("a server"));
        let leader = stand(&target.url_at(&proxy.address().to_string()), &name);
        leader.1.elected().await.unwrap();
        let next = stand(&target.url(), &name);
        // Cuts the leader off right after a renewal.
        let renewed = leader.1.last_renewal();
        while leader.1.last_renewal() == renewed {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.black_hole(Way::Up);
        let began = Instant::now();
        next.1.elected().await.unwrap();
        began.elapsed().saturating_sub(lease)
    });
    let mut spans = futures_util::future::join_all(rounds).await;
    show("takeover from a lost leader, after the end of its lease", &mut spans);
}
