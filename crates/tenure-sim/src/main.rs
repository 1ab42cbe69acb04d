//! Runs many seeds.
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    if let Some(name) = std::env::args().find(|a| tenure_sim::mutants().iter().any(|m| m.name == a)) {
        let m = tenure_sim::mutants().iter().find(|m| m.name == name).unwrap();
        let outcome = tenure_sim::run_mutant(m, args[0], true);
        for line in &outcome.timeline {
            println!("{line}");
        }
        println!("{:?}", outcome.violation);
        return;
    }
    if std::env::args().any(|a| a == "--mutants") {
        let most = args[0];
        for m in tenure_sim::mutants() {
            let mut others = std::collections::BTreeMap::<&str, u32>::new();
            let found = (0..most).find(|&seed| {
                let o = tenure_sim::run_mutant(m, seed, false);
                if let Some(v) = &o.violation {
                    *others.entry(v.invariant).or_default() += 1;
                }
                o.violation.is_some_and(|v| v.invariant == m.caught_by)
            });
            println!("{:40} {:30} {found:?} {others:?}", m.name, m.caught_by);
        }
        return;
    }
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
