//! `tenure run` on the command line.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use tenure::ElectionOptions;

use super::flags::Flags;
use crate::failure::Failure;

/// Run a command while leading
///
/// Stands in the election, waits while another leads, and runs CMD when this candidate does. CMD gets
/// TENURE_ELECTION, TENURE_CANDIDATE and TENURE_TERM in its environment; the term's number only ever
/// rises, so hand it to whatever CMD writes to and have it refuse lower ones. TENURE_STORE, which may hold a
/// password, is removed from the environment of CMD and of the health command. Standard streams are passed
/// through, but a terminal is not read from in the background: CMD's standard input is empty then.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure run nightly-jobs -- ./jobs.sh
  tenure run --lease 5s --store sqlite:/var/lib/jobs.db outbox -- ./publisher --fast
  tenure run --on-loss exit report -- sh -c 'make report && upload report.pdf'
  tenure run --health-cmd 'curl -fsS localhost:8080/health' web-cron -- ./cron.sh
  tenure run --priority 10 --preempt outbox -- ./publisher      where it should run, if it can

What happens when:
  CMD ends by itself        the seat is released, and tenure exits with CMD's exit code
  the term ends             CMD gets SIGTERM, then SIGKILL before the term is over; then tenure
                            waits for its next term (--on-loss exit: it leaves)
  tenure gets SIGTERM,      CMD gets SIGTERM, and SIGKILL if it takes longer than --stop-grace;
  SIGINT, SIGHUP, SIGQUIT   the seat is released, and tenure leaves; a second one kills CMD at once
  or SIGALRM
  tenure gets SIGUSR1       CMD's process group gets it; without a CMD it has no effect
  or SIGUSR2
  tenure is stopped,        its guard, another process, kills CMD before the term is over
  killed or cut off
  its guard is killed       tenure kills CMD, releases the seat and stands again
  --health-cmd fails        CMD is stopped as above, the seat is released, and tenure does not stand
                            until it has been well for a lease; then it stands again

The health command is run by `sh -c` every --health-every, and once before tenure first stands,
with TENURE_ELECTION and TENURE_CANDIDATE, and nothing to read. If it exits with 0, the candidate
is well: a score of 1, or the number from 0 to 1 that it prints as its last line. Anything else is
a score of 0: another exit code, a number that makes no sense, taking longer than --health-timeout.
When it has ended or its time is up, everything that it has started is killed. What was wrong, with
the last line that it printed, is shown to all by `tenure candidates`.

As process 1 of a container, tenure runs as a child of itself: process 1 passes signals on to it and
reaps all orphans.

Promised: CMD and everything it has started is gone before the next leader's CMD starts, also if
tenure or its guard alone is killed or stopped, or the guard is stopped and tenure killed.

Not promised: what CMD has started, if its guard gets SIGKILL and tenure is killed too, or stopped
(CMD itself dies); tenure and guard both stopped; a guard held by a debugger while tenure is killed
or stopped; processes frozen or in uninterruptible sleep; work that CMD has had others do, as by
systemd-run or docker run. And, unless a control group can be had (cgroup v2, as root in a
container or in a service with Delegate=yes): a CMD that raises its privileges (setuid, sudo), and
one that forks faster than its processes can be found and killed. Check TENURE_TERM where it
matters.

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

    /// A pair of text that is shown with this candidate; may be repeated
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
    /// Leave, with exit code 75
    Exit,
}

impl Run {
    /// The options of the election, as the command line has them.
    pub(crate) fn overrides(&self) -> ElectionOptions {
        let mut options = self.options.0.clone();
        options.metadata.extend(self.metadata.iter().cloned());
        options
    }

    /// Refuses options that say when a health command runs if there is none.
    pub(crate) fn needs_a_health_command(&self) -> Result<(), Failure> {
        let options = &self.options.0;
        let of_no_use =
            |flag| Failure::new(format!("{flag} has no effect without --health-cmd, or health_cmd in a file"));
        match (options.health_every, options.health_timeout) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(of_no_use("--health-every")),
            (_, Some(_)) => Err(of_no_use("--health-timeout")),
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    if key.is_empty() { Err("the key is missing".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_pairs() {
        assert_eq!(pair("zone=a=b"), Ok(("zone".to_owned(), "a=b".to_owned())));
        assert!(pair("zone").is_err() && pair("=a").is_err());
    }
}
