//! What can be written on the command line.

mod flags;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::run::{OnLoss, Run};

/// One of many leads; when it dies, hangs or steps down, another takes over, and the old one has
/// stopped before the new one starts.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Try it:
  tenure demo                                  watch leaders being killed and replaced
  tenure run nightly-jobs -- ./jobs.sh         in several terminals: only one runs it
  tenure status nightly-jobs                   who leads
  tenure candidates nightly-jobs               who stands, and how well they are

Options come from tenure.toml in the current folder, from variables such as TENURE_LEASE=15s, and
from the command line, each over the one before. `tenure help COMMAND` says more.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Where seats are kept, see `tenure stores`; use the variable if there is a password in it, as others
    /// can see command lines [default: a database in your state folder, which other users do not share]
    #[arg(long, value_name = "URL", env = "TENURE_STORE", hide_env_values = true, global = true)]
    pub(crate) store: Option<String>,

    /// Options are read from this file [default: tenure.toml, if there is one]
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG", hide_env_values = true, global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say more on standard error; twice: everything
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    /// How the log on standard error is written
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT", global = true)]
    pub(crate) log_format: LogFormat,
}

impl Global {
    /// Whether to say in plain words what happens: not with `--quiet`, nor where the log says it.
    pub(crate) fn talks(&self) -> bool {
        !self.quiet && self.verbose == 0 && self.log_format == LogFormat::Text
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Status(Status),
    Candidates(Candidates),
    Watch(Watch),
    StepDown(StepDown),
    /// List the stores in this program, what they promise and what breaks it
    Stores,
    Schema(Schema),
    Forget(Forget),
    Demo(Demo),
    Completions(Completions),
}

/// Tell who leads
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure status nightly-jobs
  tenure status --json nightly-jobs | jq .leader.candidate

A SQLite database that does not exist is not created: its elections are vacant.

Exit codes:
  0  somebody leads
  1  nobody does
  2  cannot tell: bad usage, or the store cannot be reached")]
pub(crate) struct Status {
    /// The election to look at
    pub(crate) election: String,
}

/// Tell who stands, with health, priority and age
///
/// Every `tenure run` and every program that stands in the election, on all machines, the leader first. One
/// that died drops out by itself, after its lease at the latest.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure candidates nightly-jobs
  tenure candidates --json nightly-jobs | jq -r '.candidates[] | select(.healthy) | .candidate'
  tenure step-down nightly-jobs --to \"$(tenure candidates --json nightly-jobs |
      jq -r 'first(.candidates[] | select(.healthy and (.leader | not))) | .candidate')\"

What the columns say:
  LEADS       who leads
  SCORE       how well it is, from 0 to 1, as it or its health command said; 1 before that
  HEALTHY     whether it is well enough to lead: its score is at its own --min-health or above,
              and has been for a lease if it was not before
  PRIORITY    the higher, the sooner its turn when the seat is free
  STANDS FOR  how long ago it was started, as far as its clock and this machine's agree
  LAST TOLD   when something last changed in what it tells; that it is there, its line says
  METADATA    what it says about itself (--metadata), and what was wrong in its last report

With --json: {\"election\", \"store\", \"candidates\": [{\"candidate\", \"incarnation\", \"leader\",
\"score\", \"healthy\", \"priority\", \"since\", \"updated\", \"metadata\"}, …]}. Two with the same id
are two candidates, told apart by their incarnation.

Exit codes:
  0  somebody stands
  1  nobody does
  2  cannot tell: bad usage, or the store cannot be reached or keeps no candidates")]
pub(crate) struct Candidates {
    /// The election to look at
    pub(crate) election: String,
}

/// Tell who leads, and every change as it happens
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure watch nightly-jobs
  tenure watch --json nightly-jobs | while read -r change; do …; done

A change is one line; with --json, {\"election\", \"at\", \"leader\": {\"candidate\", \"token\", …} | null}.")]
pub(crate) struct Watch {
    /// The election to watch
    pub(crate) election: String,
}

/// Ask the leader to hand over
///
/// Its command is stopped, and another candidate goes first: the one named with --to, or any.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure step-down nightly-jobs
  tenure step-down --wait 30s nightly-jobs     returns once that leader has handed over
  tenure step-down nightly-jobs --to alice     returns once alice leads

With --to the seat is kept for that candidate for two fifths of a lease after it became free. Should
it die or fall ill in that very moment, the seat is open to all, and this says who leads instead.

Exit codes:
  0  the leader was asked, and with --wait has handed over; with --to, that candidate leads now
  1  nobody leads
  2  cannot tell: bad usage, or the store cannot be reached; no such candidate, or one that leads
     already or is not well enough to; it took longer than --wait; or another leads than asked for")]
pub(crate) struct StepDown {
    /// The election to ask in
    pub(crate) election: String,

    /// Hand over to this candidate: its id, or the incarnation that `tenure candidates --json` tells
    #[arg(long, value_name = "ID")]
    pub(crate) to: Option<String>,

    /// Wait until it has handed over, for so long at most; 0s: not at all [default: 0s, with --to 30s]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    pub(crate) wait: Option<Duration>,
}

/// Print the SQL that makes a store's tables
///
/// Stores make their tables by themselves at the first call, if they may. Where they may not, have a
/// database administrator run this. It can be run again, and does no harm to tables that are there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure schema postgres | psql -d app
  tenure schema postgres --schema elections --role app > tenure.sql

With --role, it also grants that role what `tenure` needs and no more: to read and write the tables.
Then give candidates the same schema: postgres://app@db/app?schema=elections

Exit codes:
  0  printed
  2  the store is not known here, or has no tables to make")]
pub(crate) struct Schema {
    /// The store, by name
    #[arg(value_name = "STORE", value_parser = crate::commands::StoreName)]
    pub(crate) of: String,

    /// The schema that the tables are in [default: tenure]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,

    /// Who is to use the tables
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
}

/// Remove an election that is not needed any more
///
/// Should it ever be used again, its terms get higher numbers than before.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit codes:
  0  it is forgotten, or never was
  2  somebody leads and --yes was not given, or the store cannot be used")]
pub(crate) struct Forget {
    /// The election to forget
    pub(crate) election: String,

    /// Also if somebody leads, who then loses the seat
    #[arg(long)]
    pub(crate) yes: bool,
}

/// See it work: three candidates on this machine, the leader ended again and again
///
/// Runs them over a database of its own, and ends the leader by turns: killed (-9), stopped as by a
/// debugger, asked to leave. Shows who leads, the term's number, how long each hand-over took, and
/// whether two commands ever ran at once.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Whether two commands run at once is judged from outside of tenure: each command takes a lock on one
file for as long as it lives, and finding it taken is an overlap.

Exit codes:
  0  no overlap
  1  an overlap, or a hand-over that did not happen
  2  bad usage, such as a lease that is too short")]
pub(crate) struct Demo {
    /// So many leaders are ended
    #[arg(long, default_value_t = 6, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub(crate) rounds: u32,

    /// The candidates' lease
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = tenure::span::parse)]
    pub(crate) lease: Duration,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("there would be nothing to see: use 1 or more".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("use a whole number from 1 to {}", u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_is_as_wide_as_a_terminal() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn what_comes_after_the_dashes_is_the_commands() {
        let cli = Cli::parse_from(["tenure", "run", "--lease", "3s", "jobs", "--", "sh", "--lease", "x"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.command, ["sh", "--lease", "x"]);
        assert_eq!(run.overrides().lease, Some(Duration::from_secs(3)));
    }
}
