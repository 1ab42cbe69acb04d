//! `tenure run` on the command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure::{ClockTrustOption, ElectionOptions, TakeoverOption};

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

    #[command(flatten)]
    pub(crate) options: Options,

    #[command(flatten)]
    pub(crate) health: Health,
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
    lease: Option<Duration>,

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

    /// What this candidate tells about itself; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,

    /// How much the store's clock is believed: vouched, observe or store [default: the store's own]
    #[arg(long, value_name = "HOW", value_parser = judge)]
    judge: Option<ClockTrustOption>,

    /// How soon a seat is taken whose session is over: instant or safe [default: the store's own]
    #[arg(long, value_name = "HOW", value_parser = takeover)]
    takeover: Option<TakeoverOption>,

    /// The higher, the sooner this candidate's turn when the seat is free [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = priority)]
    priority: Option<i32>,

    /// Ask a leader of lower priority to hand over, once this candidate has been well for two leases
    #[arg(long)]
    preempt: bool,

    /// Leave after so many store errors in a row [default: never]
    #[arg(long, value_name = "ERRORS")]
    give_up_after: Option<u32>,
}

/// How well a candidate is, and what follows from it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Health")]
pub(crate) struct Health {
    /// A command, for sh, that tells how well this candidate is: by its exit code, or a number that it prints
    #[arg(long, value_name = "CMD")]
    health_cmd: Option<String>,

    /// How often to run it [default: lease / 3]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    health_every: Option<Duration>,

    /// How long it may take; it is killed then, and this candidate not well [default: lease * 2 / 15]
    #[arg(long, value_name = "TIME", value_parser = tenure::span::parse)]
    health_timeout: Option<Duration>,

    /// Below this score, from 0 to 1, this candidate does not stand, and hands over if it leads; 0: never
    /// mind [default: 0.8]
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true, value_parser = score)]
    min_health: Option<f64>,

    /// Go on leading even if not well; without this, the seat is handed over
    #[arg(long)]
    no_step_down_when_unhealthy: bool,
}

impl Run {
    /// The options of the election, as the command line has them.
    pub(crate) fn overrides(&self) -> ElectionOptions {
        let (options, health) = (&self.options, &self.health);
        ElectionOptions {
            candidate: options.candidate.clone(),
            lease: options.lease,
            renew_every: options.renew,
            drain: options.drain,
            stop_grace: options.stop_grace,
            metadata: options.metadata.iter().cloned().collect::<BTreeMap<_, _>>(),
            judge: options.judge,
            takeover: options.takeover,
            give_up_after: options.give_up_after,
            priority: options.priority,
            preempt: options.preempt.then_some(true),
            min_health: health.min_health,
            step_down_when_unhealthy: health.no_step_down_when_unhealthy.then_some(false),
            health_cmd: health.health_cmd.clone(),
            health_every: health.health_every,
            health_timeout: health.health_timeout,
            ..ElectionOptions::default()
        }
    }
}

impl Health {
    /// Refuses what says when a health command is run, as there is none.
    pub(crate) fn needs_a_command(&self) -> Result<(), Failure> {
        match (self.health_every, self.health_timeout) {
            (None, None) => Ok(()),
            (Some(_), _) => {
                Err(Failure::new("--health-every is of no use without --health-cmd, or health_cmd in a file"))
            }
            (_, Some(_)) => {
                Err(Failure::new("--health-timeout is of no use without --health-cmd, or health_cmd in a file"))
            }
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    if key.is_empty() { Err("the key is missing".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

fn judge(text: &str) -> Result<ClockTrustOption, String> {
    match text {
        "vouched" => Ok(ClockTrustOption::Vouched),
        "observe" => Ok(ClockTrustOption::Observe),
        "store" => Ok(ClockTrustOption::Store),
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

fn priority(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("use a whole number from {} to {}", i32::MIN, i32::MAX))
}

fn score(text: &str) -> Result<f64, String> {
    let score = text.parse().ok().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| "use a number from 0 (never mind) to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_pairs() {
        assert_eq!(pair("zone=a=b"), Ok(("zone".to_owned(), "a=b".to_owned())));
        assert!(pair("zone").is_err() && pair("=a").is_err());
    }

    #[test]
    fn scores_and_priorities_are_within_their_bounds() {
        assert_eq!((score("0.8"), score("0"), score("1")), (Ok(0.8), Ok(0.0), Ok(1.0)));
        for wrong in ["1.1", "-0.1", "NaN", "inf", "much", ""] {
            assert!(score(wrong).is_err(), "{wrong}");
        }
        assert_eq!((priority("-7"), priority("2147483647")), (Ok(-7), Ok(i32::MAX)));
        for wrong in ["2147483648", "1.5", "high", ""] {
            assert!(priority(wrong).is_err(), "{wrong}");
        }
    }
}
