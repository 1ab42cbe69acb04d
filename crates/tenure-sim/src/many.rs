//! Runs many seeds, and all mutants, on a few threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use tenure_sim::{FaultKind, Mutant, Outcome, Stats, run, run_mutant};

use crate::args::Args;

/// How many failing seeds are printed in full.
const SHOWN: usize = 10;

/// Runs many seeds. Returns whether every invariant held in each.
pub(crate) fn seeds(args: &Args) -> bool {
    let started = Instant::now();
    let next = AtomicU64::new(args.from);
    let end = args.from + args.seeds;
    let work = || {
        let (mut stats, mut kinds, mut broken) = (Stats::default(), BTreeMap::<&str, u64>::new(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return (stats, kinds, broken);
            }
            let outcome = run(seed, false);
            stats.add(&outcome.stats);
            *kinds.entry(outcome.kind).or_default() += 1;
            if outcome.violation.is_some() {
                broken.push((seed, outcome));
            }
        }
    };
    let (mut stats, mut kinds, mut broken) = (Stats::default(), BTreeMap::<&str, u64>::new(), Vec::new());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (its_stats, its_kinds, its_broken) = thread.join().expect("a worker thread panicked");
            stats.add(&its_stats);
            for (kind, count) in its_kinds {
                *kinds.entry(kind).or_default() += count;
            }
            broken.extend(its_broken);
        }
    });
    broken.sort_by_key(|(seed, _)| *seed);
    summary(args, &stats, &kinds, started.elapsed().as_secs_f64());
    for (seed, outcome) in broken.iter().take(SHOWN) {
        crate::report(*seed, None, outcome);
    }
    println!("{} violations", broken.len());
    broken.is_empty()
}

fn summary(args: &Args, stats: &Stats, kinds: &BTreeMap<&str, u64>, seconds: f64) {
    println!(
        "{} seeds from {}, in {seconds:.1} s ({:.0} per second)",
        args.seeds,
        args.from,
        args.seeds as f64 / seconds
    );
    for (kind, count) in kinds {
        println!("  {count:>9}  {kind}");
    }
    println!("  {:>9}  steps", stats.steps);
    println!("  {:>9}  terms begun, {} hand-overs", stats.terms, stats.hand_overs);
    println!("  {:>9.2}  leases until a candidate led after all faults had stopped, at most", stats.slowest_recovery);
    for fault in FaultKind::ALL {
        println!("  {:>9}  {}", stats.faults.get(&fault).copied().unwrap_or(0), fault.name());
    }
    println!("  checked: {}", tenure_sim::invariants().join(", "));
}

/// Runs all mutants. Returns whether each was caught by the invariant that its file names.
pub(crate) fn mutants(args: &Args) -> bool {
    let started = Instant::now();
    let all: Vec<&Mutant> =
        tenure_sim::mutants().iter().filter(|mutant| args.mutant.is_none_or(|one| one.name == mutant.name)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut caught = Vec::new();
        loop {
            let nr = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = all.get(nr) else { return caught };
            caught.push((nr, hunt(mutant, args)));
        }
    };
    let mut results: BTreeMap<usize, Option<(u64, Outcome)>> = BTreeMap::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            results.extend(thread.join().expect("a worker thread panicked"));
        }
    });
    println!("{:<42} {:<32} seeds needed", "mutant", "caught by");
    for (nr, result) in &results {
        let mutant = all[*nr];
        let seeds = result.as_ref().map_or("SURVIVED".to_owned(), |(seed, _)| format!("{}", seed - args.from + 1));
        println!("{:<42} {:<32} {seeds}", mutant.name, mutant.caught_by);
    }
    let survivors: Vec<_> = results.iter().filter(|(_, result)| result.is_none()).map(|(nr, _)| all[*nr]).collect();
    for mutant in &survivors {
        println!("\nSURVIVED {} seeds: {}: {}", args.most, mutant.name, mutant.about);
    }
    println!(
        "{} of {} mutants caught, in {:.1} s",
        results.len() - survivors.len(),
        results.len(),
        started.elapsed().as_secs_f64()
    );
    survivors.is_empty()
}

/// Returns the first seed in which the expected invariant is violated.
fn hunt(mutant: &Mutant, args: &Args) -> Option<(u64, Outcome)> {
    (args.from..args.from + args.most)
        .map(|seed| (seed, run_mutant(mutant, seed, false)))
        .find(|(_, outcome)| outcome.violation.as_ref().is_some_and(|broken| broken.invariant == mutant.caught_by))
}
