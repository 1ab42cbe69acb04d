//! The command: runs many seeds, all mutants, or one seed with its timeline.

mod args;
mod many;

use std::process::ExitCode;

use args::{Args, Mode};
use tenure_sim::{Mutant, Outcome, mutants, run, run_mutant};

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("{problem}\n\nrun `tenure-sim --help` for the options");
            return ExitCode::from(2);
        }
    };
    let held = match args.mode {
        Mode::Help => {
            println!("{}", args::HELP);
            true
        }
        Mode::Seeds => many::seeds(&args),
        Mode::Mutants => many::mutants(&args),
        Mode::Both => {
            let seeds = many::seeds(&args);
            many::mutants(&args) && seeds
        }
        Mode::Replay { seed } => replay(seed, args.mutant),
    };
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(seed: u64, mutant: Option<&'static Mutant>) -> bool {
    let outcome = match mutant {
        Some(mutant) => run_mutant(mutant, seed, true),
        None => run(seed, true),
    };
    println!("seed {seed}: a store of the kind \"{}\"", outcome.kind);
    println!("{:>10}  node     event (<- in, -> out)", "seconds");
    for line in &outcome.timeline {
        println!("{line}");
    }
    report(seed, mutant, &outcome);
    outcome.violation.is_none()
}

/// Prints how a seed violated an invariant, and the command that replays it.
fn report(seed: u64, mutant: Option<&Mutant>, outcome: &Outcome) {
    let Some(violation) = &outcome.violation else { return };
    println!("\nBROKEN: {} ({}): {}", violation.invariant, outcome.kind, violation.what);
    let mutant = mutant.map_or(String::new(), |mutant| format!(" --mutant {}", mutant.name));
    println!("  replay: cargo run -p tenure-sim --release -- --seed {seed}{mutant}");
}

fn find_mutant(name: &str) -> Option<&'static Mutant> {
    mutants().iter().find(|mutant| mutant.name == name)
}
