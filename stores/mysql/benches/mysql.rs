//! Measures elections over a MariaDB server on this machine, in both modes: how long a hand-over takes, and what a
//! thousand elections in one process cost while another process keeps the server busy.
//!
//!   scripts/bench mysql           TENURE_BENCH_SECONDS=60 sets how long the thousand elections run
//!                                 TENURE_BENCH_MODE=session measures only that mode

use tenure_mysql::MysqlStore;
use tenure_testkit::figures::{BenchTarget, MysqlTarget, Open, beside_a_load, hand_over, many_elections_child};

const OPEN: Open = |url| Box::new(MysqlStore::from_url(url).expect("the URL is valid"));

fn main() {
    if many_elections_child(OPEN) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let only = std::env::var("TENURE_BENCH_MODE").ok();
    for mode in ["lease", "session"].into_iter().filter(|mode| only.as_deref().is_none_or(|only| only == *mode)) {
        let target = MysqlTarget::start(mode);
        println!("{}", target.name());
        runtime.block_on(async {
            if mode == "lease" {
                // A release is not measured: followers find it by polling, a third of a lease later.
                hand_over::past_the_lapse(&target, OPEN).await;
            } else {
                hand_over::graceful(&target, OPEN).await;
                hand_over::after_the_end_of_a_connection(&target, OPEN).await;
            }
        });
        beside_a_load(&target);
    }
}
