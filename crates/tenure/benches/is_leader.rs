//! The cost of `is_leader()` compared with a bare read of the same clock: at most 1.3 times as much.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tenure::{Elections, MemoryStore};

const CALLS: u32 = 1_000_000;
const ROUNDS: u32 = 25;
const MOST: f64 = 1.3;

fn main() {
    let elections = Elections::new(MemoryStore::new());
    let election = elections.election("bench").lease(Duration::from_secs(600)).start().expect("the options are fine");
    let mut waits = 0u64;
    while !election.is_leader() {
        std::thread::yield_now();
        waits += 1;
        assert!(waits < 1_000_000_000, "never elected");
    }

    // In turns, so that other load on the machine affects both alike. The best round of each is the least disturbed
    // one.
    let (mut bare, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        bare = bare.min(time(|| {
            black_box(clock_gettime(ClockId::Boottime));
        }));
        ours = ours.min(time(|| {
            assert!(black_box(election.is_leader()));
        }));
    }
    let nanos = |span: Duration| span.as_secs_f64() * 1e9 / f64::from(CALLS);
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!("clock_gettime(CLOCK_BOOTTIME)  {:6.1} ns", nanos(bare));
    println!("is_leader()                    {:6.1} ns   {ratio:.2} x (at most {MOST} x)", nanos(ours));
    if ratio > MOST {
        println!("TOO SLOW");
        std::process::exit(1);
    }
}

fn time(mut call: impl FnMut()) -> Duration {
    let began = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    began.elapsed()
}
