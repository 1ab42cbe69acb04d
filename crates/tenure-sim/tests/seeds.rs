//! A few hundred seeds, and every mutant. The command runs many more.

use tenure_sim::{mutants, run, run_mutant};

#[test]
fn every_invariant_holds_in_a_few_hundred_seeds() {
    for seed in 0..300 {
        let outcome = run(seed, false);
        assert_eq!(outcome.violation, None, "cargo run -p tenure-sim --release -- --seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    for seed in [1, 42, 1001] {
        let (once, again) = (run(seed, true), run(seed, true));
        assert!(once.timeline.len() > 100, "too little happens in seed {seed}");
        assert_eq!(once.timeline, again.timeline, "seed {seed}");
    }
}

#[test]
fn the_pages_have_the_number_of_invariants() {
    let number = tenure_sim::invariants().len();
    let safety = include_str!("../../../SAFETY.md");
    assert!(safety.contains(&format!(" {number} invariants are checked")), "there are {number} invariants");
    let rows = include_str!("../README.md").split("| invariant | in short |\n|---|---|\n").nth(1).unwrap();
    assert_eq!(rows.lines().take_while(|line| line.starts_with('|')).count(), number, "rows of the table in README.md");
}

#[test]
fn every_mutant_names_an_invariant_and_describes_the_broken_rule() {
    let names = tenure_sim::invariants();
    assert!(mutants().len() >= 18);
    for mutant in mutants() {
        assert!(names.contains(&mutant.caught_by), "{}: unknown invariant {:?}", mutant.name, mutant.caught_by);
        assert!(mutant.about.ends_with('.'), "{}: {}", mutant.name, mutant.about);
    }
}

/// Some mutants need thousands of seeds: run `tenure-sim --mutants` in release mode.
#[test]
fn most_mutants_are_caught_within_a_hundred_seeds() {
    let caught = mutants().iter().filter(|mutant| {
        (0..100)
            .any(|seed| run_mutant(mutant, seed, false).violation.is_some_and(|it| it.invariant == mutant.caught_by))
    });
    let caught = caught.count();
    assert!(caught * 3 >= mutants().len() * 2, "only {caught} of {}", mutants().len());
}
