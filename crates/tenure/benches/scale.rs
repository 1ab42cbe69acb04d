//! Many elections in one process, on every store: how long it takes to win and to release all of them, and how much
//! memory, processor time and how many calls they cost while they are held. Then two processes with the same
//! elections: the leading process is killed.
//!
//!   scripts/bench scale [memory|sqlite|etcd|redis|postgres|mysql|consul|kubernetes]…
//!     TENURE_BENCH_SECONDS=60                  how long the last number is held; the others for a third of it
//!     TENURE_BENCH_ELECTIONS=100,1000,10000    the numbers; less where a server cannot hold as many
//!     TENURE_BENCH_LEASE=3                     the lease in seconds; use 15 for 100000 elections

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
    let sizes = std::env::var("TENURE_BENCH_ELECTIONS").unwrap_or("100,1000,10000".to_owned());
    let sizes: Vec<u64> = sizes.split(',').map(|size| size.trim().parse().expect("numbers with commas")).collect();
    let lease = Duration::from_secs(number("TENURE_BENCH_LEASE", 3));
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
        let mut sizes: Vec<u64> = sizes.iter().map(|size| *size.min(&target.most())).collect();
        sizes.dedup();
        scale::table(&*target, &sizes, lease, held_for);
        if let Some(last) = sizes.last().filter(|_| target.is_shared()) {
            scale::takeover(&*target, *last, lease);
        }
    }
}
