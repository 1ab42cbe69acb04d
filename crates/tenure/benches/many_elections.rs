//! Ten thousand elections in one process, on the store in memory: what each takes of memory and of
//! a core while it leads.

use std::time::{Duration, Instant};

use tenure::testing::MemoryStore;
use tenure::{Election, Elections};

const ELECTIONS: usize = 10_000;
const LEASE: Duration = Duration::from_secs(3);
const HELD_FOR: Duration = Duration::from_secs(15);

fn main() {
    let (memory, _) = usage();
    let began = Instant::now();
    let elections = Elections::new(MemoryStore::new());
    let all: Vec<Election> = (0..ELECTIONS)
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
    runtime.block_on(async { tokio::time::sleep(HELD_FOR).await });
    let (_, cpu_held) = usage();
    let cores = (cpu_held - cpu).as_secs_f64() / held.elapsed().as_secs_f64();
    let lost = all.iter().zip(&tokens).filter(|(e, token)| e.term().is_none_or(|term| term.token() != **token)).count();

    let began = Instant::now();
    elections.stop();
    runtime.block_on(elections.stopped());
    println!("{ELECTIONS} elections, lease {LEASE:?}, held for {HELD_FOR:?}");
    println!("all elected in       {elected:.2?}, all released in {:.2?}", began.elapsed());
    println!("memory per election  {} bytes", memory_held.saturating_sub(memory) / ELECTIONS as u64);
    println!("cpu                  {:.1} % of a core", cores * 100.0);
    println!("terms lost           {lost}");
    if lost > 0 {
        std::process::exit(1);
    }
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
