//! The command line of `tenure run`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use tenure::ElectionOptions;

use super::flags::Flags;
use crate::failure::Failure;

/// Run a command while leading
///
/// Stands in the election, waits while another candidate leads, and runs CMD while this candidate leads. CMD gets
/// TENURE_ELECTION, TENURE_CANDIDATE and TENURE_TERM in its environment. The number of the term only ever rises:
/// pass it along with every write of CMD, and have the receiver reject lower numbers. TENURE_STORE can contain a
/// password, so it is removed from the environment of CMD and of the health command. CMD inherits the standard
/// streams; if tenure runs in the background of a terminal, CMD's standard input is empty.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure run nightly-jobs -- ./jobs.sh
  tenure run --lease 5s --store sqlite:/var/lib/jobs.db outbox -- ./publisher --fast
  tenure run --on-loss exit report -- sh -c 'make report && upload report.pdf'
  tenure run --health-cmd 'curl -fsS localhost:8080/health' web-cron -- ./cron.sh
  tenure run --priority 10 --preempt outbox -- ./publisher      on the preferred machine

Events and their effects:
  CMD exits                 tenure releases the seat and exits with CMD's exit code
  the term ends             CMD gets SIGTERM, and SIGKILL before the term is over; then tenure
                            waits for its next term (with --on-loss exit, it exits)
  tenure gets SIGTERM,      CMD gets SIGTERM, and SIGKILL after --stop-grace; then tenure releases
  SIGINT, SIGHUP, SIGQUIT   the seat and exits; a second signal kills CMD at once
  or SIGALRM
  tenure gets SIGUSR1       CMD's process group gets the signal; if CMD is not running, the signal
  or SIGUSR2                is ignored
  tenure is stopped,        its guard, a separate process, kills CMD before the term is over
  killed or cut off
  the guard is killed       tenure kills CMD, releases the seat and stands again
  --health-cmd fails        tenure stops CMD as above and releases the seat; it stands again after
                            it has been healthy for a lease

`sh -c` runs the health command every --health-every, and once before tenure first stands, with
TENURE_ELECTION and TENURE_CANDIDATE set and an empty standard input. If it exits with 0, the score
is the number from 0 to 1 on its last line of output, or 1 if that line is not a number. Otherwise
the score is 0: for any other exit code, for a number out of range, and for a command that takes
longer than --health-timeout. When the command has exited or timed out, every process that it has
started is killed. `tenure candidates` shows the error and the last line of its output.

As process 1 of a container, tenure runs as a child of itself: process 1 forwards signals to the
child and reaps all orphans.

Promised: CMD and every process that it has started are gone before the next leader's CMD starts,
also if tenure or its guard is killed or stopped, or if the guard is stopped and tenure is killed.

Not promised: the descendants of CMD if the guard gets SIGKILL while tenure is killed or stopped
(CMD itself dies); CMD while both tenure and the guard are stopped, or while a debugger holds the
guard and tenure is killed or stopped; processes that are frozen or in uninterruptible sleep; work
that CMD delegates, for example to systemd-run or docker run. Without a control group (cgroup v2, as
root in a container or in a service with Delegate=yes), also not: a CMD that raises its privileges
(setuid, sudo), or forks faster than its processes can be found and killed. Check TENURE_TERM where
two writers would do harm.

Exit codes:
  CMD's own, or 128+n if signal n killed it
  2      tenure itself failed: bad usage, or the store cannot be used
  75     the term ended, with --on-loss exit
  126    CMD could not be executed
  127    CMD was not found
  128+n  signal n asked tenure to leave while CMD was not running or had to be stopped")]
pub(crate) struct Run {
    /// The election to stand in
    pub(crate) election: String,

    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    /// What to do when the term ends
    #[arg(long, value_enum, default_value_t = OnLoss::Stand, value_name = "WHAT")]
    pub(crate) on_loss: OnLoss,

    /// A key and a value to show with this candidate; can be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "The candidate")]
    pub(crate) metadata: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) options: Flags,
}

/// What to do when the term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// Stand again
    Stand,
    /// Exit with code 75
    Exit,
}

impl Run {
    /// Returns the options of the election that the command line sets.
    pub(crate) fn overrides(&self) -> ElectionOptions {
        let mut options = self.options.0.clone();
        options.metadata.extend(self.metadata.iter().cloned());
        options
    }

    /// Rejects the options of a health command, for an election that has no health command.
    pub(crate) fn reject_health_options(&self) -> Result<(), Failure> {
        let options = &self.options.0;
        let rejected = |flag| {
            Failure::new(format!("{flag} has no effect without --health-cmd; add it, or set health_cmd in tenure.toml"))
        };
        match (options.health_every, options.health_timeout) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(rejected("--health-every")),
            (_, Some(_)) => Err(rejected("--health-timeout")),
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    if key.is_empty() { Err("the key must not be empty".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_split_at_the_first_equals_sign() {
        assert_eq!(pair("zone=a=b"), Ok(("zone".to_owned(), "a=b".to_owned())));
        assert!(pair("zone").is_err() && pair("=a").is_err());
    }
}
