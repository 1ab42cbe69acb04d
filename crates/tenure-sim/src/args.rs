//! What the command was asked for.

use tenure_sim::Mutant;

pub(crate) const HELP: &str = "\
Simulates elections: a store, three to five candidates with clocks of their own, and what goes wrong.
A seed stands for one world, and always gives the same one.

  tenure-sim --seeds 10000          run this many seeds; every promise must hold in each
  tenure-sim --mutants              break one rule of the machine at a time; each must be caught
  tenure-sim --seeds 10000 --mutants   both
  tenure-sim --seed 42              replay one seed, with a timeline in words
  tenure-sim --seed 42 --mutant NAME   replay it with a rule broken

  --from N           the first seed (0)
  --mutant NAME      with --mutants: this one only
  --most N           with --mutants: how many seeds a mutant may survive (20000)
  --threads N        how many threads (2)

Exit code 0 if everything held, 1 if not, 2 if asked for something that there is not.
When a promise is broken, the invariant, what happened and the command that replays it are printed.
What is checked and what is broken: crates/tenure-sim/README.md.";

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
                text.parse().map_err(|_| format!("{word} needs a number, not {text}"))
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
                        format!("there is no mutant {name}; there are: {}", names.join(", "))
                    })?);
                }
                other => return Err(format!("there is no option {other}")),
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
