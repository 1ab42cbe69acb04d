//! Many elections in one process, on every store: how long it takes to win and to release all of them, and how much
//! memory, processor time and how many calls they cost while they are held. Then two processes with the same
//! elections: the leading process is killed.
//!
//!   scripts/bench scale [memory|sqlite|etcd|redis|postgres|mysql|consul|kubernetes]…
//!     TENURE_BENCH_SECONDS=60       how long the largest number is held; smaller numbers for a third of it
//!     TENURE_BENCH_ELECTIONS=10000  the largest number, at least 100; less where a server cannot hold as many

use std::time::Duration;

use tenure_testkit::figures::{
    BenchTarget, ConsulTarget, EtcdTarget, FileTarget, KubernetesTarget, MemoryTarget, MysqlTarget, Open,
    PostgresTarget, RedisTarget, many_elections_child, number, scale,
};

const OPEN: Open = |url| tenure::connect(url).expect("a valid URL");

fn main() {
    if many_elections_child(OPEN) {
        return;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let most = number("TENURE_BENCH_ELECTIONS", 10_000);
    let held_for = Duration::from_secs(number("TENURE_BENCH_SECONDS", 60));
    type Start = fn() -> Box<dyn BenchTarget>;
    let targets: [(&str, Start); 10] = [
        ("memory", || Box::new(MemoryTarget)),
        ("sqlite", || Box::new(FileTarget::new())),
        ("etcd", || Box::new(EtcdTarget::start())),
        ("redis", || Box::new(RedisTarget::start())),
        ("postgres", || Box::new(PostgresTarget::start("lease"))),
        ("postgres", || Box::new(PostgresTarget::start("session"))),
        ("mysql", || Box::new(MysqlTarget::start("lease"))),
        ("mysql", || Box::new(MysqlTarget::start("session"))),
        ("consul", || Box::new(ConsulTarget::start())),
        ("kubernetes", || Box::new(KubernetesTarget::start())),
    ];
    for (name, start) in targets {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let target = start();
        let most = most.min(target.most());
        let sizes: Vec<u64> = [100, 1000, 10_000].into_iter().filter(|size| *size < most).chain([most]).collect();
        scale::table(&*target, &sizes, held_for);
        if target.is_shared() {
            scale::takeover(&*target, most);
        }
    }
}
