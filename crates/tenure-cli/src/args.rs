//! What can be written on the command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tenure::{ElectionOptions, JudgeOption, TakeoverOption};

/// One of many leads; when it dies, hangs or steps down, another takes over, and the old one has
/// stopped before the new one starts.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Try it:
  tenure demo                                  watch leaders being killed and replaced
  tenure run nightly-jobs -- ./jobs.sh         in several terminals: only one runs it
  tenure status nightly-jobs                   who leads

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
    /// can see command lines [default: a database in your state folder]
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

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Status(Status),
    Watch(Watch),
    StepDown(StepDown),
    /// List the stores in this program, what they promise and what breaks it
    Stores,
    Schema(Schema),
    Forget(Forget),
    Demo(Demo),
    Completions(Completions),
}

/// Run a command while leading
///
/// Stands in the election, waits while another leads, and runs CMD when this candidate does. CMD gets
/// TENURE_ELECTION, TENURE_CANDIDATE and TENURE_TERM in its environment; the term's number only ever
/// rises, so hand it to whatever CMD writes to and have it refuse lower ones. Standard streams are passed
/// through.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure run nightly-jobs -- ./jobs.sh
  tenure run --lease 5s --store sqlite:/var/lib/jobs.db outbox -- ./publisher --fast
  tenure run --on-loss exit report -- sh -c 'make report && upload report.pdf'

What happens when:
  CMD ends by itself        the seat is released, and tenure exits with CMD's exit code
  the term ends             CMD gets SIGTERM, then SIGKILL before the term is over; then tenure
                            waits for its next term (--on-loss exit: it leaves)
  tenure gets SIGTERM,      CMD gets SIGTERM, and SIGKILL if it takes longer than --stop-grace;
  SIGINT or SIGHUP          the seat is released, and tenure leaves; a second one kills CMD at once
  tenure is stopped,        its guard, another process, kills CMD before the term is over
  killed or cut off

Promised: CMD and everything it has started is gone before the next leader's CMD starts, also if
tenure or its guard alone is killed or stopped.

Not promised: what CMD has started, if tenure and its guard both get SIGKILL (CMD itself dies);
tenure and guard both stopped, or the one stopped and the other killed; processes frozen or in
uninterruptible sleep; a CMD that raises its privileges (setuid, sudo), unless a control group can be
had; work that CMD has had others do, as by systemd-run or docker run. Check TENURE_TERM where it matters.

Exit codes:
  CMD's own, or 128 + n if signal n ended it
  2      tenure itself failed: bad usage, or the store cannot be used
  75     the term ended, with --on-loss exit
  126    CMD could not be executed
  127    CMD was not found
  128+n  tenure was asked to leave by signal n, and CMD was not running or had to be stopped")]
pub(crate) struct Run {
    /// The election to stand in
    pub(crate) election: String,

    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// What to do when the term ends
    #[arg(long, value_enum, default_value_t = OnLoss::Stand, value_name = "WHAT")]
    pub(crate) on_loss: OnLoss,

    #[command(flatten)]
    pub(crate) options: Options,
}

/// What to do when the term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// Stand again
    Stand,
    /// Leave, with exit code 75
    Exit,
}

/// The options of an election.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The election")]
pub(crate) struct Options {
    /// This candidate's name, for people to read [default: host-pid]
    #[arg(long, value_name = "ID")]
    candidate: Option<String>,

    /// How long the seat stays taken without a renewal; all that follows scales with it [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    pub(crate) lease: Option<Duration>,

    /// How often to renew the lease [default: lease / 3]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    renew: Option<Duration>,

    /// How long CMD is given to wrap up before the term is over [default: lease * 2 / 15]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    drain: Option<Duration>,

    /// How long CMD is given to wrap up when tenure is asked to leave or to hand over; may be longer
    /// than the lease [default: as drain]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    stop_grace: Option<Duration>,

    /// What this candidate tells about itself while it leads; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,

    /// How much the store's clock is believed: vouched, observe or store [default: the store's own]
    #[arg(long, value_name = "HOW", value_parser = judge)]
    judge: Option<JudgeOption>,

    /// How soon a seat is taken whose session is over: instant or safe [default: the store's own]
    #[arg(long, value_name = "HOW", value_parser = takeover)]
    takeover: Option<TakeoverOption>,

    /// Leave after so many store errors in a row [default: never]
    #[arg(long, value_name = "ERRORS")]
    give_up_after: Option<u32>,
}

impl Options {
    pub(crate) fn overrides(&self) -> ElectionOptions {
        ElectionOptions {
            candidate: self.candidate.clone(),
            lease: self.lease,
            renew_every: self.renew,
            drain: self.drain,
            stop_grace: self.stop_grace,
            metadata: self.metadata.iter().cloned().collect::<BTreeMap<_, _>>(),
            judge: self.judge,
            takeover: self.takeover,
            give_up_after: self.give_up_after,
            ..ElectionOptions::default()
        }
    }
}

/// Tell who leads
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure status nightly-jobs
  tenure status --json nightly-jobs | jq .leader.candidate

Exit codes:
  0  somebody leads
  1  nobody does
  2  cannot tell: bad usage, or the store cannot be reached")]
pub(crate) struct Status {
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
/// Its command is stopped, and another candidate goes first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure step-down nightly-jobs
  tenure step-down --wait 30s nightly-jobs     returns once that leader has handed over

Exit codes:
  0  the leader was asked, and with --wait has handed over
  1  nobody leads
  2  cannot tell: bad usage, the store cannot be reached, or it took longer than --wait")]
pub(crate) struct StepDown {
    /// The election to ask in
    pub(crate) election: String,

    /// Wait until it has handed over, for so long at most
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
  1  an overlap, or a hand-over that did not happen")]
pub(crate) struct Demo {
    /// So many leaders are ended
    #[arg(long, default_value_t = 6, value_name = "N")]
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

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    if key.is_empty() { Err("the key is missing".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

fn judge(text: &str) -> Result<JudgeOption, String> {
    match text {
        "vouched" => Ok(JudgeOption::Vouched),
        "observe" => Ok(JudgeOption::Observe),
        "store" => Ok(JudgeOption::Store),
        _ => Err("use vouched, observe or store".to_owned()),
    }
}

fn takeover(text: &str) -> Result<TakeoverOption, String> {
    match text {
        "instant" => Ok(TakeoverOption::Instant),
        "safe" => Ok(TakeoverOption::Safe),
        _ => Err("use instant or safe".to_owned()),
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
    fn what_comes_after_the_dashes_is_the_commands() {
        let cli = Cli::parse_from(["tenure", "run", "--lease", "3s", "jobs", "--", "sh", "--lease", "x"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.command, ["sh", "--lease", "x"]);
        assert_eq!(run.options.overrides().lease, Some(Duration::from_secs(3)));
    }

    #[test]
    fn metadata_is_pairs() {
        assert_eq!(pair("zone=a=b"), Ok(("zone".to_owned(), "a=b".to_owned())));
        assert!(pair("zone").is_err() && pair("=a").is_err());
    }
}
