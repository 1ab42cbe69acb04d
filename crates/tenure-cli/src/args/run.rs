//! The command line of `tenure run`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::job::{Job, exit_code};

/// Run a command while leading
///
/// Stands in the election, waits while another candidate leads, and runs CMD while this candidate leads. CMD gets
/// TENURE_ELECTION, TENURE_CANDIDATE and TENURE_TERM in its environment. The number of the term only ever rises:
/// pass it along with every write of CMD, and have the receiver reject lower numbers. TENURE_STORE can contain a
/// password, so it is removed from the environment of CMD and of the health command. CMD inherits the standard
/// streams; if tenure runs in the background of a terminal, CMD's standard input is empty.
///
/// A TIME is a number with a unit: 500ms, 15s, 1m30s, 7d.
#[derive(Debug, Args)]
#[command(override_usage = "tenure run [OPTIONS] ELECTION -- CMD…")]
#[command(after_long_help = "\
Examples:
  tenure run nightly-jobs -- ./jobs.sh
  tenure run --lease 5s --store sqlite:/var/lib/jobs.db outbox -- ./publisher --fast
  tenure run --on-loss exit report -- sh -c 'make report && upload report.pdf'
  tenure run --no-wait backup -- ./backup.sh       or exit with 1 if another candidate leads
  tenure run --health-cmd 'curl -fsS localhost:8080/health' web-cron -- ./cron.sh
  tenure run --priority 10 --preempt outbox -- ./publisher      on the preferred machine
  tenure run --tty console -- bash                              an interactive command
  tenure run --on-start 'service-ctl lead $TENURE_TERM' --on-stop 'service-ctl follow' web

Events and their effects:
  CMD exits                 tenure releases the seat and exits with CMD's exit code
  the term ends             CMD gets SIGTERM, and SIGKILL before the term is over; then tenure
                            waits for its next term (with --on-loss exit, it exits)
  tenure gets SIGTERM,      CMD gets SIGTERM, and SIGKILL after --stop-grace; then tenure releases
  SIGINT, SIGHUP, SIGQUIT   the seat and exits; a second signal kills CMD at once
  or SIGALRM
  tenure gets SIGUSR1       CMD's process group gets the signal; if CMD is not running, the signal
  or SIGUSR2                is ignored; --forward chooses other signals, of which INT and QUIT ask a
                            candidate to leave while CMD is not running
  tenure is cut off         the term ends as above; CMD works until its last moment if none of its
                            processes handles SIGTERM and they have less than 256 MiB of memory,
                            because then they end at once
  tenure is stopped         its guard, a separate process, kills CMD before the term is over
  tenure is killed,         its guard kills CMD at once and then frees the seat, so that the next
  or crashes                leader need not wait for the lease
  the guard is killed       tenure kills CMD, releases the seat and stands again
  --health-cmd fails        tenure stops CMD as above and releases the seat; it stands again after
                            it has been healthy for a lease

`sh -c` runs the health command every --health-every, and once before tenure first stands, with
TENURE_ELECTION and TENURE_CANDIDATE set and an empty standard input. If it exits with 0, the score
is the number from 0 to 1 on its last line of output, or 1 if that line is not a number. Otherwise
the score is 0: for any other exit code, for a number out of range, and for a command that takes
longer than --health-timeout. When the command has exited or timed out, every process that it has
started is killed. `tenure candidates` shows the error and the last line of its output.

Hooks are for a service that runs on every machine and is told when to lead. Both are run by `sh -c`
with the environment of CMD and an empty standard input. --on-start runs at the start of a term. If
it fails, --on-stop runs, and tenure releases the seat and exits with its code. Then CMD runs. If
there is no CMD, tenure leads until it is asked to leave. --on-stop runs at the end of each term,
when CMD and every process of --on-start are gone, and before the next leader can start. It also
runs if tenure or its guard is killed or stopped; if its guard is killed meanwhile, it runs again.
CMD gets SIGTERM, and SIGKILL so early that --on-stop has about half of --drain. It is killed when
the term is over. A second signal to tenure does not shorten it. --on-stop does not run if the
machine dies, if tenure and its guard are both killed, or if the seat is lost at once, as when its
record is deleted or its session ends: another candidate may lead already. So a service should check
TENURE_TERM, as CMD should.

With --tty, CMD has a terminal of its own with job control and the size of this one, so shells,
editors and full-screen programs work. While CMD runs, keys such as Ctrl-C go to CMD, not to tenure.
When the term ends, CMD gets SIGHUP besides SIGTERM. Without --tty, Ctrl-Z stops tenure and CMD, and
CMD stays stopped in the background of a terminal that it could read.

Under systemd (Type=notify), tenure is ready when its candidate stands, which means that the store
has answered. Its status line names the leader. --ready-fd is for s6.

As process 1 of a container, tenure runs as a child of itself: process 1 forwards signals to the
child and reaps all orphans.

Promised: CMD and every process that it has started are gone before the next leader's CMD starts,
also if tenure or its guard is killed or stopped, or if the guard is stopped and tenure is killed.

If the guard is killed as well, the machine fails or the store cannot be reached, the seat becomes
free when its lease expires. docs/last-will.md says more.

Not promised: the descendants of CMD if the guard gets SIGKILL while tenure is killed or stopped
(CMD itself dies; with mode=session, perhaps a moment after the seat is free); CMD
while both tenure and the guard are stopped, or while a debugger holds the guard and tenure is
killed or stopped; processes that are frozen or in uninterruptible sleep; work that CMD delegates,
for example to systemd-run or docker run. Without a control group (cgroup v2, as
root in a container or in a service with Delegate=yes), also not: a CMD that raises its privileges
(setuid, sudo), or forks faster than its processes can be found and killed. Check TENURE_TERM where
two writers would do harm.

To run a job once for all machines, as cron and timers need it, see `tenure help once`.

Exit codes:
  CMD's own, or 128+n if signal n killed it
  1      another candidate leads, with --wait or --no-wait; see --conflict-exit-code
  2      tenure itself failed: bad usage, the store cannot be used, or no candidate leads when the
         time of --wait is up
  75     the term ended, with --on-loss exit
  126    CMD could not be executed
  127    CMD was not found
  128+n  signal n asked tenure to leave while CMD was not running or had to be stopped")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) job: Job,

    /// What to do when the term ends
    #[arg(long, value_enum, default_value_t = OnLoss::Stand, value_name = "WHAT")]
    pub(crate) on_loss: OnLoss,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    /// The exit code if another candidate leads, with --wait or --no-wait
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = exit_code)]
    pub(crate) conflict_exit_code: u8,
}

/// How long to wait until this candidate leads.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitArgs {
    /// Give up if this candidate does not lead within this time [default: wait forever]
    #[arg(short, long, value_name = "TIME", value_parser = tenure::span::parse)]
    wait: Option<Duration>,

    /// Give up at once if another candidate leads
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
}

impl WaitArgs {
    /// Returns how long to wait; `None`: forever. With `--no-wait` it is zero.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.wait.or(self.no_wait.then_some(Duration::ZERO))
    }
}

/// What to do when the term ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// Stand again
    Stand,
    /// Exit with code 75
    Exit,
}
