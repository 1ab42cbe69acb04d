//! The command line of `tenure once`.

use std::time::Duration;

use clap::Args;

use super::job::{Job, exit_code};
use super::run::WaitArgs;
use crate::schedule::Schedule;

/// Run a command on one of many machines, once for each occasion
///
/// Start it on every machine at about the same time, for example from the same crontab. One of them runs CMD. The
/// others exit with 0 as soon as that is certain, and print which candidate runs it. A machine that starts late does not
/// run CMD again, even if CMD has ended by then. CMD gets the same environment and has the same guard as with `tenure
/// run`.
///
/// A TIME is a number with a unit: 500ms, 15s, 1m30s, 7d.
#[derive(Debug, Args)]
#[command(override_usage = "tenure once [OPTIONS] --slot SCHEDULE|--for TIME ELECTION -- CMD…")]
#[command(group = clap::ArgGroup::new("occasion").required(true))]
#[command(after_long_help = "\
Examples, as lines of a crontab that is the same on all machines:
  0 3 * * *     TENURE_STORE=redis://db tenure once --slot '0 3 * * *' nightly -- ./nightly.sh
  */15 * * * *  TENURE_STORE=redis://db tenure once --for 10m sync -- ./sync.sh
cron searches programs in /usr/bin and /bin unless the crontab sets PATH, and mails what a job
prints: with --quiet, tenure prints only errors.

What is one occasion?
  --slot SCHEDULE  All machines that start for the same scheduled time. SCHEDULE is that of the
                   crontab, in the time zone of this machine or in one that is named after it
                   ('0 3 * * * Europe/Berlin'), or a period (1h: every full hour, UTC). A machine
                   counts for the last scheduled time that has passed, however late it starts. A
                   machine that is early, because its clock is slow, counts for the next one, up to
                   --skew before it. An hour that a change to summer time skips has no occasion, so
                   name another hour, or UTC as the time zone.
  --for TIME       All machines that start within TIME after the start of the one that ran CMD.
                   Choose a TIME that is longer than the differences between the starts and between
                   the clocks of the machines. TIME and these differences together must be shorter
                   than the interval.

What it rests on:
  The write that wins the seat also records the occasion, and the record stays in the store. So two
  machines never run CMD for the same occasion, even if one of them is slow, paused or cut off.
  Clocks decide only which occasion a machine counts for: clocks that differ by more than --skew, or
  by more than TIME, can run CMD twice, but never at the same time. A machine whose clock is fast by
  a slot or more takes all occasions up to that time from the others. `tenure forget ELECTION`
  removes the record, as does a store that loses its data: then CMD can run again.

If CMD does not start or does not end:
  A machine takes the occasion before it starts CMD. If the machine then dies, loses its term, gives
  up waiting for the store, gets a signal to leave or cannot execute CMD, the occasion counts as
  taken, and CMD does not run again until the next one. So CMD runs at most once.
  With --resume, the others wait until CMD has ended, with any exit code. In the cases above, one of
  them runs CMD again. It also does so if the store cannot be reached for a lease when CMD ends,
  because the end is not recorded then. So CMD runs at least once if any of the machines stays, and
  must tolerate a second run.

Exit codes:
  CMD's own, or 128+n if signal n killed it
  0      another machine runs CMD, or has run it, or runs it for an earlier occasion when the time
         of --wait is up; see --conflict-exit-code
  2      tenure itself failed: bad usage, the store cannot be used, or no candidate leads when the
         time of --wait is up
  75     the term ended before CMD did, so CMD was stopped
  126    CMD could not be executed
  127    CMD was not found
  128+n  signal n asked tenure to leave while CMD was not running or had to be stopped")]
pub(crate) struct Once {
    #[command(flatten)]
    pub(crate) job: Job,

    /// Run CMD once for each time of this schedule: fields of a crontab, or a period such as 1h
    #[arg(long, value_name = "SCHEDULE", value_parser = Schedule::parse, group = "occasion")]
    pub(crate) slot: Option<Schedule>,

    /// Run CMD once for all machines that start within this time
    #[arg(long = "for", id = "within", value_name = "TIME", value_parser = some_time, group = "occasion")]
    pub(crate) within: Option<Duration>,

    /// How much before a scheduled time a machine still counts for it; at most a quarter of the interval
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse, default_value = "30s", conflicts_with = "within")]
    pub(crate) skew: Duration,

    /// Run CMD again, on another machine, if the one that runs it dies or has to stop before CMD has ended
    #[arg(long)]
    pub(crate) resume: bool,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    /// The exit code if another machine runs CMD or has run it
    #[arg(short = 'E', long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = exit_code)]
    pub(crate) conflict_exit_code: u8,
}

/// Parses a duration that is longer than zero.
fn some_time(text: &str) -> Result<Duration, String> {
    let time = tenure::span::parse(text).map_err(|error| error.to_string())?;
    if time.is_zero() {
        Err("must be longer than 0s, because each machine would run CMD; write it like 1h".to_owned())
    } else {
        Ok(time)
    }
}
