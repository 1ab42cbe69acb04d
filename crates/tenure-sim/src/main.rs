//! Runs many seeds.
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    if args.len() == 1 {
        let outcome = tenure_sim::run(args[0], true);
        for line in &outcome.timeline {
            println!("{line}");
        }
        println!("{:?}", outcome.violation);
        return;
    }
    let mut bad = std::collections::BTreeMap::<&str, Vec<(u64, String)>>::new();
    let mut stats = tenure_sim::Stats::default();
    for seed in args[0]..args[1] {
        let outcome = tenure_sim::run(seed, false);
        stats.add(&outcome.stats);
        if let Some(v) = outcome.violation {
            bad.entry(v.invariant).or_default().push((seed, format!("{:?} {}", outcome.kind, v.what)));
        }
    }
    for (name, seeds) in &bad {
        println!("{name}: {} seeds", seeds.len());
        for s in seeds.iter().take(6) {
            println!("   {s:?}");
        }
    }
    println!("{stats:?}");
}
