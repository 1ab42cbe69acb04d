//! Measures elections over a Redis server on this machine: how long a hand-over takes, and what a thousand
//! elections in one process cost while another process keeps the server busy, compared with a thousand locks of
//! rslock.
//!
//!   scripts/bench redis        TENURE_BENCH_SECONDS=60 sets how long the thousand elections run

mod rslock;

use tenure_redis::RedisStore;
use tenure_testkit::figures::{Open, RedisTarget, beside_a_load, hand_over, many_elections_child};

const OPEN: Open = |url| Box::new(RedisStore::from_url(url).expect("the URL is valid"));

fn main() {
    if many_elections_child(OPEN) || rslock::child() {
        return;
    }
    let target = RedisTarget::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        hand_over::graceful(&target, OPEN).await;
        hand_over::past_the_lapse(&target, OPEN).await;
    });
    beside_a_load(&target);
    rslock::beside_a_load(&target);
}
