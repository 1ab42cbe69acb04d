//! Benchmarks on an API server on this machine: how long a takeover takes.
//!
//! scripts/bench kubernetes        TENURE_BENCH_ROUNDS=100 sets how many leaders stop

use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::{Election, Elections};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::figures::{number, show};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::Kubernetes;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Kubernetes::start();
        graceful(&server).await;
        after_a_crash(&server).await;
    });
}

fn stand(kubeconfig: &Path, name: &str, lease: Duration) -> (Elections, Election) {
    let url = format!("kubernetes:?kubeconfig={}", kubeconfig.display());
    let elections = Elections::new(KubernetesStore::from_url(&url).unwrap());
    let election = elections.election(name).lease(lease).start().unwrap();
    (elections, election)
}

/// Measures the time from `stop()` of a leader without work to the next term.
async fn graceful(server: &Kubernetes) {
    let kubeconfig = server.kubeconfig(&server.namespace());
    let mut spans = Vec::new();
    let mut leader = stand(&kubeconfig, "graceful", Duration::from_secs(15));
    leader.1.elected().await.unwrap();
    for _ in 0..number("TENURE_BENCH_ROUNDS", 100) {
        let next = stand(&kubeconfig, "graceful", Duration::from_secs(15));
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // By then its watch is established.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        leader.1.stop();
        next.1.elected().await.unwrap();
        spans.push(began.elapsed());
        leader = next;
    }
    show("a leader that stops is followed after", &mut spans);
}

/// Measures the time from the end of the lease, counted from the last renewal, to the next term.
async fn after_a_crash(server: &Kubernetes) {
    let lease = Duration::from_secs(2);
    let mut spans = Vec::new();
    for round in 0..5 {
        let namespace = server.namespace();
        let proxy = Proxy::start(server.address());
        let through = server.kubeconfig_by(&namespace, &format!("https://{}", proxy.address()));
        let leader = stand(&through, "crash", lease);
        leader.1.elected().await.unwrap();
        let next = stand(&server.kubeconfig(&namespace), "crash", lease);
        while next.1.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // At any point between two renewals.
        tokio::time::sleep(Duration::from_millis(2500 + 137 * round)).await;
        proxy.black_hole(Way::Up);
        // By then all earlier calls are answered.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let renewed = leader.1.last_renewal().expect("it has renewed");
        next.1.elected().await.unwrap();
        let since = renewed.elapsed().unwrap_or_default();
        spans.push(since.checked_sub(lease).expect("it was followed before its lease had lapsed"));
    }
    show("a leader that is gone is followed, past the lease from its last renewal, after", &mut spans);
}
