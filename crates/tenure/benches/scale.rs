//! Many elections in one process, on every store: how long it takes to win and to release them all, and
//! what they cost of memory, of a core and of the server while they are held. Then two processes with
//! the same elections, of which the one that leads is killed.
//!
//!   scripts/bench scale [memory|sqlite|etcd|redis|postgres|consul|kubernetes]…
//!     TENURE_BENCH_SECONDS=60       how long the most are held; fewer for a third of it
//!     TENURE_BENCH_ELECTIONS=10000  how many at most, from a hundred on; fewer where a server carries no more

use std::time::Duration;

use tenure_testkit::figures::{
    ConsulGround, EtcdGround, FileGround, Ground, KubernetesGround, MemoryGround, Open, PostgresGround, RedisGround,
    crowd_child, number, scale,
};

const OPEN: Open = |url| tenure::connect(url).expect("a URL that can be read");

fn main() {
    if crowd_child(OPEN) {
        return;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let most = number("TENURE_BENCH_ELECTIONS", 10_000);
    let held_for = Duration::from_secs(number("TENURE_BENCH_SECONDS", 60));
    type Start = fn() -> Box<dyn Ground>;
    let grounds: [(&str, Start); 8] = [
        ("memory", || Box::new(MemoryGround)),
        ("sqlite", || Box::new(FileGround::new())),
        ("etcd", || Box::new(EtcdGround::start())),
        ("redis", || Box::new(RedisGround::start())),
        ("postgres", || Box::new(PostgresGround::start("lease"))),
        ("postgres", || Box::new(PostgresGround::start("session"))),
        ("consul", || Box::new(ConsulGround::start())),
        ("kubernetes", || Box::new(KubernetesGround::start())),
    ];
    for (name, start) in grounds {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let ground = start();
        let most = most.min(ground.most());
        let sizes: Vec<u64> = [100, 1000, 10_000].into_iter().filter(|size| *size < most).chain([most]).collect();
        scale::table(&*ground, &sizes, held_for);
        if ground.is_shared() {
            scale::takeover(&*ground, most);
        }
    }
}
