//! The command line: subcommands, flags and their help texts.

mod flags;
mod install;
mod job;
mod line;
mod once;
mod run;
mod wrong;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::install::{Completions, Man, Shell};
pub(crate) use self::job::{Forward, Job};
pub(crate) use self::line::quoted;
pub(crate) use self::once::Once;
pub(crate) use self::run::{OnLoss, Run};
pub(crate) use self::wrong::answer;

/// Elects one leader among many processes. When the leader dies, hangs or steps down, another
/// candidate takes over, and the old leader's command has stopped before the new one starts.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Try it:
  tenure demo                                  watch leaders being killed and replaced
  tenure run nightly-jobs -- ./jobs.sh         in several terminals: only one runs the command
  tenure once --for 1h report -- ./report.sh   on many machines, from cron: one of them runs it
  tenure status                                list all elections and their leaders
  tenure status nightly-jobs                   show the leader of one
  tenure candidates nightly-jobs               list the candidates and their health
  tenure explain nightly-jobs                  say why nobody leads

Options are read from tenure.toml in the current folder, then from variables such as
TENURE_LEASE=15s, then from the command line. Later ones override earlier ones. A TIME is a number
with a unit: 500ms, 15s, 1m30s, 7d. For the options of a command, see `tenure help COMMAND`.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store that keeps the election, see `tenure stores`. Pass a URL with a password in the variable:
    /// other users can see command lines [default: a SQLite database in this user's state folder]
    #[arg(long, value_name = "URL", env = "TENURE_STORE", hide_env_values = true, global = true)]
    pub(crate) store: Option<String>,

    /// Read options from this file [default: tenure.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG", hide_env_values = true, global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON, errors too; docs/json.md describes it. `run` and `once` write their log as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Write a log to standard error; repeat for more detail
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    /// The format of the log on standard error; json turns the log on
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT", global = true)]
    pub(crate) log_format: LogFormat,
}

impl Global {
    /// Returns whether to print messages for people: not with `--quiet`, and not where the log has them.
    pub(crate) fn prints_messages(&self) -> bool {
        !self.quiet && self.prints_errors()
    }

    /// Returns whether to print errors for people: not where the log has them.
    pub(crate) fn prints_errors(&self) -> bool {
        self.verbose == 0 && self.log_format == LogFormat::Text
    }
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Once(Box<Once>),
    Status(Status),
    Candidates(Candidates),
    Explain(Explain),
    Watch(Watch),
    StepDown(StepDown),
    Stores(Stores),
    Schema(Schema),
    Forget(Forget),
    BreakLease(BreakLease),
    Demo(Demo),
    Completions(Completions),
    Man(Man),
    Will(Will),
}

/// Free the seats of a program when it dies
///
/// Programs that use the library start this as a companion, with the option last_will. It waits until the program is
/// dead, and then frees the seats that the program held. It is of no use on the command line: `tenure run` has a guard,
/// which does the same.
#[derive(Debug, Args)]
#[command(after_long_help = "\
It reads from standard input which seats its parent holds. docs/last-will.md describes what it
promises, and how a program starts it.

Exit codes:
  0  the seats are free, or its parent has released them
  1  a seat could not be freed; it becomes free when its lease expires
  2  it was not started by such a program")]
pub(crate) struct Will {}

/// Show the leader of an election, or all elections
///
/// Without ELECTION, lists all elections that have a record in the store, with their leaders: those that run, and
/// those that ran once and were not removed with `tenure forget`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure status                              list all elections
  tenure status nightly-jobs
  tenure status --json nightly-jobs | jq .leader.candidate
  tenure status --json | jq -r '.elections[] | select(.leader) | .election'

Columns of the list:
  LEADER   the candidate that leads; - if the seat is vacant; ? if its record cannot be read
  TERM     the number of its term, or of the last one
  ELECTED  the time since it was elected, by its own clock and this machine's
  EXPIRES  when its lease expires if it is not renewed; - for stores in which a session holds the
           seat; unknown if the store does not know whether the leader is alive

The store is printed on standard error: the path of its file, or its server without the password.
The list has the elections within the prefix, schema, namespace or file of the store. On Kubernetes
it has no Lease that only other programs have written. On Redis it goes through all keys.

It creates nothing, and needs no right to write: of a SQLite database, read access to the file and
to its -wal and -shm files; for the other stores see their README. A SQLite database that does not
exist has no elections.

With --json and ELECTION: {\"election\", \"store\", \"leader\": {\"candidate\", \"token\", …} | null,
\"vouched\", \"token\"}. Without ELECTION: {\"store\", \"elections\": [{\"election\", …}, …]}, sorted by
name. An election whose record cannot be read has an \"error\" in place of the last three.

Exit codes:
  0  the election has a leader; without ELECTION, the list was printed, also if it is empty
  1  the seat is vacant
  2  unknown: bad usage, the store cannot be reached, or a record cannot be read")]
pub(crate) struct Status {
    /// The name of the election [default: list all elections]
    pub(crate) election: Option<String>,
}

/// List the candidates, with health, priority and age
///
/// Lists every `tenure run` and every program that stands in the election, on all machines, the leader first.
/// A candidate that has died is removed from the list within two leases (over Consul, four).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure candidates nightly-jobs
  tenure candidates --json nightly-jobs | jq -r '.candidates[] | select(.healthy) | .candidate'
  tenure step-down nightly-jobs --to \"$(tenure candidates --json nightly-jobs |
      jq -r 'first(.candidates[] | select(.healthy and (.leader | not))) | .candidate')\"

Columns:
  LEADS     whether the candidate is the leader
  SCORE     its health from 0 to 1, as its health command or program reports it; 1 before a report
  HEALTHY   whether it is healthy enough to lead: its score is at least its own --min-health; after
            an unhealthy report, this takes a lease of healthy ones
  PRIORITY  when the seat is free, the candidate with the highest priority goes first
  AGE       the time since it was started, by its own clock and this machine's
  UPDATED   when its health or its health report last changed
  METADATA  its --metadata, and the error of its last health report

With --json: {\"version\", \"election\", \"store\", \"candidates\": [{\"candidate\", \"incarnation\", …}, …]};
see docs/json.md. Candidates with the same id have different incarnations.

Exit codes:
  0  there is at least one candidate
  1  there are no candidates
  2  unknown: bad usage, or the store cannot be reached or does not keep a list of candidates")]
pub(crate) struct Candidates {
    /// The name of the election
    pub(crate) election: String,
}

/// Say why an election has no leader, or why a candidate does not lead
///
/// Reads the seat and the list of candidates once, and prints what they show, the most important first. It writes
/// nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure explain nightly-jobs
  tenure explain nightly-jobs --candidate web-1     why does web-1 not lead?

It can tell
  the leader, and how long its lease still lasts, as far as the store knows that
  a leader that has not renewed its lease
  candidates that are unhealthy, with the error of their health check
  candidates that leave the seat to others: to a named one, to a higher priority, or to any other
  after they have stepped down
  an occasion of `tenure once` that was taken
  leases that differ, and clocks that are ahead of this machine's

It cannot tell anything about candidates that cannot reach the store or use another one. A clock
that is behind cannot be told from news that are old.

Exit codes:
  0  the election has a leader
  1  the seat is vacant
  2  unknown: bad usage, or the store cannot be reached")]
pub(crate) struct Explain {
    /// The name of the election
    pub(crate) election: String,

    /// Say why this candidate does not lead: its id, or its incarnation from `tenure candidates --json`
    #[arg(long, value_name = "ID")]
    pub(crate) candidate: Option<String>,
}

/// Show the leader, and every change as it happens
///
/// On a terminal, shows the leader, the candidates and the last changes, and updates them in place until Ctrl-C. Into a
/// file or a pipe, prints one line for each change. Without ELECTION, does the same for all elections of the store,
/// which it lists every two seconds: it does not see a term that begins and ends in between.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure watch                              all elections of the store
  tenure watch nightly-jobs
  tenure watch --json nightly-jobs | while read -r change; do …; done

If the store cannot be read at the start, the command exits with 2. If it fails later, a line says
so, and the command continues.

With --json, each change is one object:
{\"version\", \"election\", \"store\", \"at\", \"leader\": {\"candidate\", \"token\", …} | null}.")]
pub(crate) struct Watch {
    /// The name of the election [default: all elections]
    pub(crate) election: Option<String>,

    /// Print one line for each change, also on a terminal
    #[arg(long)]
    pub(crate) lines: bool,
}

/// Ask the leader to hand over
///
/// The leader stops its command and releases the seat. Then another candidate leads: the one that --to names, or
/// any.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure step-down nightly-jobs
  tenure step-down --wait 30s nightly-jobs     returns once that leader has handed over
  tenure step-down nightly-jobs --to alice     returns once alice leads

With --to, the seat is reserved for that candidate for two fifths of a lease after it became free.
If the candidate dies or becomes unhealthy meanwhile, any candidate can take the seat, and this
command prints which one leads instead.

Exit codes:
  0  the leader was asked; with --wait, it has handed over; with --to, that candidate leads
  1  the seat is vacant
  2  failed: bad usage; the store cannot be reached; the candidate of --to does not stand, leads
     already or is unhealthy; the wait timed out; or a candidate other than --to leads")]
pub(crate) struct StepDown {
    /// The name of the election
    pub(crate) election: String,

    /// Hand over to this candidate: its id, or its incarnation from `tenure candidates --json`
    #[arg(long, value_name = "ID")]
    pub(crate) to: Option<String>,

    /// Wait at most this long for the hand-over; 0s does not wait [default: 0s, with --to 30s]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    pub(crate) wait: Option<Duration>,
}

/// List the stores in this program, their promises and what breaks them
///
/// With --cost, print how many requests an idle election makes on stores that bill by the request, and what they cost.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure stores
  tenure stores --cost --lease 60s --candidates 3
  tenure stores --cost --write-price 0.0045 --read-price 0.00036

The default prices are public list prices as of 2025: of S3 Standard in us-east-1, and of Azure Blob
Storage, hot tier with local redundancy in the US. Prices change, and depend on the provider and the
region: look them up.

Exit codes:
  0  the list was printed
  2  bad usage, or --cost in a program without such a store")]
pub(crate) struct Stores {
    /// Print the requests and the price of an idle election on stores that bill by the request
    #[arg(long)]
    pub(crate) cost: bool,

    /// The lease of the election
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = tenure::span::parse, requires = "cost")]
    pub(crate) lease: Duration,

    /// The number of processes that stand, including the leader
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = at_least_one, requires = "cost")]
    pub(crate) candidates: u32,

    /// Count the notes, too: the list of candidates, and requests to the leader
    #[arg(long, requires = "cost")]
    pub(crate) notes: bool,

    /// The price of 1000 requests that write or list, in US dollars [default: 0.005 for S3, 0.0065 for Azure]
    #[arg(long, value_name = "USD", value_parser = price, requires = "cost")]
    pub(crate) write_price: Option<f64>,

    /// The price of 1000 requests that read, in US dollars [default: 0.0004 for S3, 0.0005 for Azure]
    #[arg(long, value_name = "USD", value_parser = price, requires = "cost")]
    pub(crate) read_price: Option<f64>,
}

/// Print the SQL that creates a store's tables
///
/// A store creates its tables at the first call if its role is allowed to. If it is not, have a database
/// administrator run this SQL. Running it again does no harm: it leaves existing tables as they are.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure schema postgres | psql -d app
  tenure schema postgres --schema elections --role app > tenure.sql
  tenure schema mysql --schema app --role app@10.0.0.% | mysql
  tenure schema sqlserver --role app > tenure.sql

With --role, the SQL also grants that role the privileges that `tenure` needs, and no others: to
read and write the tables. Candidates must use the same schema:
postgres://app@db/app?schema=elections. For MySQL, the schema is the database, and --role needs it.

Exit codes:
  0  the SQL was printed
  2  the store is unknown or has no tables")]
pub(crate) struct Schema {
    /// The name of the store, not its URL
    #[arg(value_name = "STORE", value_parser = crate::commands::StoreName)]
    pub(crate) of: String,

    /// The schema of the tables; for MySQL, their database [default: tenure; for MySQL, the current database]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,

    /// The role that is granted access to the tables
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
}

/// Remove an election that is no longer needed
///
/// The store keeps the number of its last term: if the election is used again, its terms continue above that
/// number. The last occasion of `tenure once` is removed: a machine that starts for it afterwards runs its command again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit codes:
  0  the election was removed, or did not exist
  2  the election has a leader and --yes was not given, or the store cannot be used")]
pub(crate) struct Forget {
    /// The name of the election
    pub(crate) election: String,

    /// Remove the election even if it has a leader, which loses the seat, or if its record cannot be read
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Break the lease that another program holds on the blob of an election, in Azure Blob Storage
///
/// The lease ends when its current period ends, after at most 60 seconds, or at once if it does not expire. If a leader
/// holds it, its term ends at the next renewal, before another candidate can lead.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure break-lease jobs --store azblob://account/container
  tenure break-lease --yes jobs

Exit codes:
  0  the lease was broken, or there was none
  2  --yes was not given, or the store has no such leases or cannot be used")]
pub(crate) struct BreakLease {
    /// The name of the election
    pub(crate) election: String,

    /// Break the lease; without this, only say who holds it
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Show leaders being killed and replaced: three candidates on this machine
///
/// Starts three candidates over a temporary database and ends the leader again and again, in turn: killed
/// (SIGKILL), stopped as by a debugger (SIGSTOP), and asked to leave (SIGTERM). Prints the leader, the number of
/// its term, how long each hand-over took, and whether two commands ever ran at once.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The check for overlaps is independent of tenure: each command locks the same file for as long as it
runs, and a command that finds the file locked counts as an overlap.

Exit codes:
  0  no overlap
  1  an overlap, or a hand-over that did not happen
  2  bad usage, such as a lease that is too short")]
pub(crate) struct Demo {
    /// The number of leaders to end
    #[arg(long, default_value_t = 6, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub(crate) rounds: u32,

    /// The lease of the candidates
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = tenure::span::parse)]
    pub(crate) lease: Duration,
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "must be a number, 0 or more".to_owned())
}

fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("must be a whole number from 1 to {}", u32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lines_of_help_have_at_most_100_characters() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn arguments_after_the_dashes_belong_to_the_command() {
        let cli = Cli::parse_from(["tenure", "run", "--lease", "3s", "jobs", "--", "sh", "--lease", "x"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.job.command(), ["sh", "--lease", "x"]);
        assert_eq!(run.job.overrides().lease, Some(Duration::from_secs(3)));
    }
}
