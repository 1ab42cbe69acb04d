//! The command line.

use tenure_sim::Mutant;

pub(crate) const HELP: &str = "\
Simulates elections: a store, three to five candidates with clocks of their own, and faults.
A seed determines one world: the same seed always gives the same world.

  tenure-sim --seeds 10000          run this many seeds; every invariant must hold in each
  tenure-sim --mutants              break one rule of the protocol at a time; an invariant must notice each
  tenure-sim --seeds 10000 --mutants   both
  tenure-sim --seed 42              replay one seed, with a timeline
  tenure-sim --seed 42 --mutant NAME   replay it with one rule broken

  --from N           the first seed (0)
  --mutant NAME      with --mutants: only this one
  --most N           with --mutants: how many seeds to try before a mutant counts as survived (20000)
  --threads N        the number of threads (2)

The exit code is 0 if all invariants held and all mutants were caught, 1 if not, and 2 for invalid options.
When an invariant is violated, the command prints its name, what happened, and the command that replays it.
crates/tenure-sim/README.md lists the invariants and the faults.";

pub(crate) struct Args {
    pub(crate) mode: Mode,
    pub(crate) seeds: u64,
    pub(crate) from: u64,
    pub(crate) most: u64,
    pub(crate) threads: u64,
    pub(crate) mutant: Option<&'static Mutant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Help,
    Seeds,
    Mutants,
    Both,
    Replay { seed: u64 },
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self { mode: Mode::Seeds, seeds: 10_000, from: 0, most: 20_000, threads: 2, mutant: None };
        let (mut wants_seeds, mut wants_mutants, mut seed) = (false, false, None);
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64, String> {
                let text = words.next().ok_or_else(|| format!("{word} needs a number"))?;
                text.parse().map_err(|_| format!("{word} must be a number, got {text:?}"))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(Self { mode: Mode::Help, ..args }),
                "--seeds" => (wants_seeds, args.seeds) = (true, number()?),
                "--mutants" => wants_mutants = true,
                "--seed" => seed = Some(number()?),
                "--from" => args.from = number()?,
                "--most" => args.most = number()?,
                "--threads" => args.threads = number()?.max(1),
                "--mutant" => {
                    let name = words.next().ok_or("--mutant needs a name")?;
                    args.mutant = Some(crate::find_mutant(&name).ok_or_else(|| {
                        let names: Vec<_> = tenure_sim::mutants().iter().map(|mutant| mutant.name).collect();
                        format!("unknown mutant {name:?}; the mutants are {}", names.join(", "))
                    })?);
                }
                other => return Err(format!("unknown option {other:?}")),
            }
        }
        args.mode = match (seed, wants_seeds, wants_mutants || args.mutant.is_some()) {
            (Some(seed), ..) => Mode::Replay { seed },
            (None, true, true) => Mode::Both,
            (None, false, true) => Mode::Mutants,
            (None, _, false) => Mode::Seeds,
        };
        Ok(args)
    }
}
