//! Many elections in one process: what each takes of memory and of a core while it leads.
//!
//! Ten thousand on the store in memory for 15 s, unless `TENURE_BENCH_STORE` (a URL),
//! `TENURE_BENCH_ELECTIONS` and `TENURE_BENCH_SECONDS` say otherwise.

use std::time::{Duration, Instant};

use tenure::{Election, Elections};

const LEASE: Duration = Duration::from_secs(3);

fn main() {
    let store = std::env::var("TENURE_BENCH_STORE").unwrap_or_else(|_| "memory:".to_owned());
    let elections_wanted = number("TENURE_BENCH_ELECTIONS", 10_000);
    let held_for = Duration::from_secs(number("TENURE_BENCH_SECONDS", 15));
    let (memory, _) = usage();
    let began = Instant::now();
    let elections = Elections::new(tenure::connect(&store).expect("a store"));
    let all: Vec<Election> = (0..elections_wanted)
        .map(|number| elections.election(format!("election-{number}")).lease(LEASE).start().expect("all is fine"))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let tokens = runtime.block_on(async {
        let mut tokens = Vec::new();
        for election in &all {
            tokens.push(election.elected().await.expect("it runs").token());
        }
        tokens
    });
    let elected = began.elapsed();

    let (memory_held, cpu) = usage();
    let held = Instant::now();
    runtime.block_on(async { tokio::time::sleep(held_for).await });
    let (_, cpu_held) = usage();
    let cores = (cpu_held - cpu).as_secs_f64() / held.elapsed().as_secs_f64();
    let lost = all.iter().zip(&tokens).filter(|(e, token)| e.term().is_none_or(|term| term.token() != **token)).count();

    let began = Instant::now();
    elections.stop();
    runtime.block_on(elections.stopped());
    let scheme = store.split(':').next().unwrap_or_default();
    println!("{elections_wanted} elections on {scheme}, lease {LEASE:?}, held for {held_for:?}");
    println!("all elected in       {elected:.2?}, all released in {:.2?}", began.elapsed());
    println!("memory per election  {} bytes", memory_held.saturating_sub(memory) / elections_wanted);
    println!("memory in all        {:.1} MB", memory_held as f64 / 1e6);
    println!("cpu                  {:.1} % of a core", cores * 100.0);
    println!("terms lost           {lost}");
    if lost > 0 {
        std::process::exit(1);
    }
}

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// Resident memory in bytes, and time spent on a processor, of this process.
fn usage() -> (u64, Duration) {
    let read = |file: &str| std::fs::read_to_string(file).expect("only on Linux");
    let pages: u64 = read("/proc/self/statm").split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    let nanos: u64 = std::fs::read_dir("/proc/self/task")
        .expect("only on Linux")
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    (pages * rustix::param::page_size() as u64, Duration::from_nanos(nanos))
}
