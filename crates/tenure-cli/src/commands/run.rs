//! `tenure run`: runs a command while this candidate leads.
//!
//! ```text
//!               elected               ending                    gone
//!  tenure  waits ──▶ start, kill-at … ──▶ stop, kill-at ──────────▶ the seat is released ──▶ waits
//!  guard   waits ──▶ spawns CMD ────────▶ SIGTERM … SIGKILL ──▶ gone
//! ```
//!
//! The command counts as work of the term until the guard reports that no process of it is left. So the engine does not
//! release the seat before that. The guard enforces the engine's own deadline, less a margin. Each renewal moves it.

mod exit_reason;
mod health;
mod margin;
mod messages;
mod program;
mod progress;
mod waiting;

use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::Signal;
use tenure::{
    Election, ElectionOptions, Elections, EndReason, Ended, EventKind, Events, Fault, Moment, Occasion, Term, Work,
};

use self::exit_reason::{ExitReason, exec_failure};
use self::health::{HealthCommand, Verdict};
pub(crate) use self::margin::{margin, shortest_lease};
use self::messages::Messages;
use self::progress::{Outcome, Progress};
use self::waiting::Waited;
use crate::args::{Global, Job, OnLoss, Run};
use crate::failure::{Failure, error_words};
use crate::process::guard_handle::{self, GuardHandle};
use crate::process::now;
use crate::process::pty::Pty;
use crate::process::signals::{self, Signals};
use crate::process::terminal::{self, JobControl};
use crate::process::will::{Report, Will};
use crate::process::wire::{Exit, GuardEvent, Hook, Order};
use crate::setup::Setup;
use crate::stderr;
use crate::supervisor::Supervisor;

pub(crate) async fn run(global: &Global, setup: &Setup, args: Run) -> Result<u8, Failure> {
    args.job.reject_doubtful("run", &raw_arguments())?;
    let task = Task {
        occasion: None,
        on_loss: args.on_loss,
        patience: args.wait.limit(),
        conflict_exit_code: args.conflict_exit_code,
        job: args.job,
    };
    run_task(global, setup, task).await
}

/// Returns the words of the command line after the name of this program.
pub(crate) fn raw_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// A command to run while leading, and when to leave the election.
pub(crate) struct Task {
    pub(crate) job: Job,
    /// The occasion to run it for (`tenure once`).
    pub(crate) occasion: Option<Occasion>,
    pub(crate) on_loss: OnLoss,
    /// How long to wait until this candidate leads; `None`: forever.
    pub(crate) patience: Option<Duration>,
    /// The exit code if another candidate leads, or has claimed the occasion.
    pub(crate) conflict_exit_code: u8,
}

pub(crate) async fn run_task(global: &Global, setup: &Setup, task: Task) -> Result<u8, Failure> {
    // A standby whose program is missing says so now, and not when it takes over.
    let program = program_of(&task.job);
    if let Err(errno) = program::find(&program) {
        if task.job.command().iter().skip(1).any(|word| word == "--") {
            return Err(Failure::new(format!(
                "{}: command not found; write only ELECTION before --, and quote a name that has spaces",
                program.display()
            ))
            .with_code(127));
        }
        return exec_failure(errno.raw_os_error(), &program).into_code();
    }
    if (task.job.on_start.is_some() || task.job.on_stop.is_some()) && program::find("sh".as_ref()).is_err() {
        return Err(Failure::new("--on-start and --on-stop need a shell: sh is not on PATH").with_code(127));
    }
    let has_terminal = || std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if task.job.tty && !has_terminal() {
        return Err(Failure::new("--tty needs a terminal as standard input and standard output; leave it out"));
    }
    if task.job.tty {
        stderr::on_raw_terminal();
    }
    // This comes first, so that no signal is lost.
    let forwarded: Vec<Signal> = task.job.forward.iter().copied().map(signals::forwarded).collect();
    let leave: Vec<Signal> = signals::LEAVE.into_iter().filter(|signal| !forwarded.contains(signal)).collect();
    let (signals, forwarded) = (Signals::listen(&leave)?, Signals::listen(&forwarded)?);
    // Otherwise these would end this process.
    let _ignored = Signals::listen(&signals::PASS_ON)?;
    // Before the engine starts its thread.
    guard_handle::make_room();
    // Before the candidate stands: if it fails, no occasion is claimed in vain.
    let supervisor = Supervisor::new(task.job.ready_fd)?;
    let elections = setup.elections()?;
    let options = setup.options(&task.job.election).overlaid(task.job.overrides());
    let margin = margin(&options, elections.promises().min_lease)?;
    let timing = options.durations()?.check().map_err(tenure::Error::from)?;
    let drain = timing.drain();
    if task.job.on_stop.is_some() {
        margin::check_hook(drain, margin)?;
    }
    if task.job.on_stop.is_some() && timing.stop_grace() < drain {
        // The command would be killed without SIGTERM, or the hook before it has done anything.
        let (grace, drain) = (tenure::span::show(timing.stop_grace()), tenure::span::show(drain));
        return Err(Failure::new(format!(
            "stop_grace of {grace} is too short for --on-stop; use at least the drain of {drain}, or leave it out"
        )));
    }
    let (election, verdict) = stand(&elections, &task, &options)?;
    let will = Will {
        store: setup.url().to_owned(),
        election: task.job.election.clone(),
        candidate: election.candidate().clone(),
        lease: timing.lease(),
        report: if global.json {
            Report::Json
        } else if global.prints_messages() {
            Report::Lines
        } else {
            Report::Quiet
        },
    };
    // A store with a lifeline needs no will. Without a will, a crash costs a lease, as it does when this machine fails.
    let will = if elections.promises().lifeline { None } else { will.seal().ok() };
    let guard = start_guard(&election, &task.job, will.as_ref())?;
    // A command with a terminal of its own has its own Ctrl-Z.
    let job_control = if task.job.tty { None } else { Some(JobControl::start(global.prints_messages())?) };
    job_control.iter().for_each(|control| control.follow(guard.orders()));
    let mut runner = Runner {
        events: election.events(),
        verdict,
        guard,
        job_control,
        will,
        margin,
        grace: drain.saturating_sub(margin),
        pty: None,
        messages: Messages::new(global, &task.job.election),
        location: setup.location().map(|location| (setup.shown(), location)),
        store_works: false,
        denied: false,
        guards: 1,
        asked: None,
        give_up_at: task.patience.map(|patience| tokio::time::Instant::now() + patience),
        elections,
        election,
        signals,
        forwarded,
        supervisor,
        task,
    };
    let watchdog = runner.supervisor.watchdog();
    let work = async {
        let reason = runner.run().await;
        // A store that denies the first call has changed nothing.
        let left = if reason.is_err() { runner.denied } else { runner.leave().await };
        if left {
            runner.guard.settled();
        }
        reason
    };
    let reason = tokio::select! {
        reason = work => reason?,
        never = watchdog => match never {},
    };
    // The guard exits first, so that no process is left when this one ends.
    runner.guard.close(GUARD_EXIT_TIMEOUT).await;
    // Closing the store's connections keeps a server busy for longer than a whole hand-over takes. So this waits
    // while the next leader starts, perhaps on the same machine.
    if !setup.is_file() {
        tokio::time::sleep(CLOSE_DELAY).await;
    }
    reason.into_code()
}

/// Starts the candidate of this process.
fn stand(elections: &Elections, task: &Task, options: &ElectionOptions) -> Result<(Election, Verdict), Failure> {
    let health = HealthCommand::new(&task.job, options)?;
    let verdict = health.as_ref().map(HealthCommand::verdict).unwrap_or_default();
    let mut builder = elections.election(&task.job.election).options(options.clone());
    if let Some(occasion) = task.occasion {
        builder = builder.occasion(occasion);
    }
    let mut candidate = None;
    if let Some(health) = health {
        candidate = Some(health.candidate());
        builder = builder.health_timeout(health.engine_timeout()).health(async move || health.check().await);
    }
    let election = builder.start()?;
    if let Some(candidate) = candidate {
        let _ = candidate.set(election.candidate().id.clone());
    }
    Ok((election, verdict))
}

struct Runner {
    task: Task,
    elections: Elections,
    election: Election,
    events: Events,
    guard: GuardHandle,
    job_control: Option<JobControl>,
    /// The last will of this candidate, which every guard gets.
    will: Option<OwnedFd>,
    /// Signals that ask `tenure` to hand over and leave.
    signals: Signals,
    /// Signals that are forwarded to the command while it runs.
    forwarded: Signals,
    supervisor: Supervisor,
    messages: Messages,
    /// The URL of the store and the location of the seats, until they are printed.
    location: Option<(String, String)>,
    verdict: Verdict,
    /// How long before the end of the hold the command must be gone.
    margin: Duration,
    /// How long before that a term ends for its work.
    grace: Duration,
    /// The command's own terminal, while it runs (`--tty`).
    pty: Option<Pty>,
    /// Whether the store has answered.
    store_works: bool,
    /// Whether the store has denied the first call.
    denied: bool,
    /// The number of guards started so far.
    guards: u32,
    /// The signal that asked this process to leave.
    asked: Option<i32>,
    /// When to leave if this candidate has never led.
    give_up_at: Option<tokio::time::Instant>,
}

impl Runner {
    /// Runs the command in each term of this candidate, until there is a reason to exit.
    async fn run(&mut self) -> Result<ExitReason, Failure> {
        loop {
            let term = match self.wait().await? {
                Waited::Elected(term) => term,
                Waited::Ended(ended) => return Ok(self.exit_reason(ended)),
                Waited::InVain => match self.conflict().await? {
                    Some(reason) => return Ok(reason),
                    None => continue,
                },
            };
            self.give_up_at = None;
            self.store_works = true;
            // If a signal asked to leave meanwhile, or the term is ending, the command is not started.
            let Some(work) = self.asked.is_none().then(|| term.begin_work()).flatten() else {
                self.await_end(&term).await?;
                if self.asked.is_none() && self.task.on_loss == OnLoss::Exit {
                    return Ok(ExitReason::Lost);
                }
                continue;
            };
            match self.lead(&term, work).await? {
                Outcome::Failed { errno } => return Ok(exec_failure(errno, &program_of(&self.task.job))),
                Outcome::Exited(exit) => return Ok(ExitReason::Exited(exit)),
                Outcome::Stopped(exit) if self.asked.is_some() => return Ok(ExitReason::Asked(self.asked, exit)),
                Outcome::Stopped(_) if self.task.on_loss == OnLoss::Exit => return Ok(ExitReason::Lost),
                Outcome::Stopped(_) => self.await_end(&term).await?,
            }
        }
    }

    /// Runs the command for this term, and returns when no process of it is left.
    async fn lead(&mut self, term: &Term, work: Work) -> Result<Outcome, Failure> {
        let mut deadline = term.deadline();
        let mut moved_at = now();
        let mut progress = Progress::default();
        let (token, grace) = (Some(term.token().get()), self.grace.as_nanos() as u64);
        let started = self.start(Order::Start { token, kill_at: self.kill_at(deadline), grace })?;
        let mut reliable = started
            && loop {
                let (overdue, nap) = (self.overdue(deadline, moved_at), self.longest_nap());
                tokio::select! {
                    biased;
                    signal = self.signals.next() => {
                        let again = self.asked.is_some();
                        self.on_signal(signal);
                        // A hook for the end must have its time.
                        if again && self.task.job.on_stop.is_some() {
                            self.guard.kill();
                        } else if again && !self.guard.kill_at(0) {
                            break false;
                        } else if progress.stopping {
                            self.guard.stop();
                        }
                    }
                    signal = self.forwarded.next() => {
                        // As while the candidate waits: without a command, these keys ask this process to leave.
                        if signals::is_typed(signal) && !progress.runs_command(&self.task.job) {
                            self.on_signal(signal);
                        } else {
                            self.guard.pass_on(signal);
                        }
                    }
                    moved = term.deadline_moved(deadline) => {
                        (deadline, moved_at) = (moved, now());
                        if !self.guard.kill_at(self.kill_at(deadline)) {
                            break false;
                        }
                    }
                    () = term.ending(), if !progress.stopping => {
                        progress.stopping = true;
                        self.ask_to_end(term);
                    }
                    event = self.guard.event() => match event {
                        None => break false,
                        Some(GuardEvent::Gone) => break true,
                        Some(event) => if self.update(&mut progress, event) {
                            if self.task.occasion.is_some() {
                                term.finish();
                            }
                            // Processes that it has left behind end with the term.
                            self.election.stop();
                        }
                    },
                    // The guard should have killed everything by then, so it has failed.
                    () = tokio::time::sleep(overdue) => if !self.guard.has_event() { break false },
                    event = next(&mut self.events) => self.on_event(&event)?,
                    // A guard that is stopped (SIGSTOP) meanwhile would leave no time for the hook, and the command may
                    // handle SIGTERM since it was last asked to end.
                    () = tokio::time::sleep(nap), if progress.stopping => self.ask_to_end(term),
                }
            };
        while !reliable {
            self.replace_guard().await?;
            reliable = self.run_on_stop(term, &mut progress).await?;
        }
        if self.task.job.on_stop.is_some() && !progress.on_stop_ended && progress.failed.is_none() {
            self.messages.on_stop_skipped();
        }
        // The command is gone, but the engine would continue to lead. Releasing the seat lets this candidate bid again
        // at once. After stepping down it would leave the seat to others for two leases, and there may be none.
        if !progress.stopping && !progress.ended_unasked && progress.failed.is_none() && term.is_current() {
            self.election.release();
        }
        // The engine can release the seat only now.
        drop(work);
        if let Some(pty) = self.pty.take() {
            pty.finish().await;
        }
        Ok(progress.outcome())
    }

    /// Processes an event of the guard. Returns whether the command, or the hook before it, has ended without being
    /// asked to.
    fn update(&self, progress: &mut Progress, event: GuardEvent) -> bool {
        if let GuardEvent::HookEnded(hook, exit) = event
            && exit != Exit::Code(0)
            && (hook == Hook::OnStop || !progress.stopping)
        {
            self.messages.hook_failed(hook, exit);
        }
        progress.update(event)
    }

    /// Runs the hook for the end of a term whose guard has failed, under the next guard. Returns whether that guard
    /// still works, and no process is left.
    async fn run_on_stop(&mut self, term: &Term, progress: &mut Progress) -> Result<bool, Failure> {
        if self.task.job.on_stop.is_none() || progress.on_stop_ended {
            return Ok(true);
        }
        let (mut deadline, mut moved_at) = (term.deadline(), now());
        let mut last_seen = deadline;
        let order = Order::OnStop { token: Some(term.token().get()), kill_at: self.kill_at(deadline) };
        if !self.start(order)? {
            return Ok(false);
        }
        loop {
            let (overdue, nap) = (self.overdue(deadline, moved_at), self.longest_nap());
            tokio::select! {
                biased;
                moved = term.deadline_moved(last_seen) => {
                    last_seen = moved;
                    // A renewal gives the hook no more time, but the loss of the seat leaves it none.
                    if moved < deadline {
                        (deadline, moved_at) = (moved, now());
                        if !self.guard.kill_at(self.kill_at(deadline)) {
                            return Ok(false);
                        }
                    }
                }
                event = self.guard.event() => match event {
                    None => return Ok(false),
                    Some(GuardEvent::Gone) => return Ok(true),
                    Some(event) => drop(self.update(progress, event)),
                },
                () = tokio::time::sleep(overdue) => if !self.guard.has_event() { return Ok(false) },
                () = tokio::time::sleep(nap) => self.guard.wake(),
            }
        }
    }

    /// Starts the work of a term with the standard streams of this process, or in a terminal of its own. Returns whether
    /// the guard still works.
    ///
    /// # Errors
    /// If the guard cannot be given the lifeline: without it, the seat could be free before the command has ended.
    fn start(&mut self, order: Order) -> Result<bool, Failure> {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let pty = self.task.job.tty.then(Pty::open).transpose().map_err(|error| {
            Failure::new(format!("command not started: cannot open a terminal for it: {error}; leave out --tty"))
        })?;
        let (pty, its_side) = pty.unzip();
        self.pty = pty;
        let dev_null = terminal::is_in_background().then(|| File::open("/dev/null").ok()).flatten();
        let stdin = dev_null.as_ref().map_or(stdin.as_fd(), AsFd::as_fd);
        let streams = match &its_side {
            Some(terminal) => [terminal.as_fd(); 3],
            None => [stdin, stdout.as_fd(), stderr.as_fd()],
        };
        // Read while the term has work, so the lifeline belongs to this term.
        let lifeline = self.election.lifeline().map_err(|error| {
            let what = "command not started: cannot duplicate the descriptor that holds the seat";
            Failure::new(format!("{what}: {error}; raise the limit of open files (ulimit -n)"))
        })?;
        Ok(self.guard.start(order, streams, lifeline.as_ref().map(AsFd::as_fd)))
    }

    /// Asks the command to end. If the lease cannot be renewed, time alone ends the term, so a command that ends at once
    /// works until its deadline. For all other reasons, another candidate may be waiting for the seat.
    fn ask_to_end(&self, term: &Term) {
        if self.asked.is_none() && term.end_reason() == Some(EndReason::NotRenewed) {
            self.guard.expire();
        } else {
            self.guard.stop();
        }
    }

    async fn await_end(&mut self, term: &Term) -> Result<(), Failure> {
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.on_signal(signal),
                event = next(&mut self.events) => self.on_event(&event)?,
                () = term.ended() => return Ok(()),
            }
        }
    }

    /// Leaves the election and waits until the seat is released. A signal cuts the wait short. Returns whether the
    /// engine has done all that it could to release the seat.
    async fn leave(&mut self) -> bool {
        self.election.stop();
        loop {
            tokio::select! {
                biased;
                () = self.elections.stopped() => return true,
                signal = self.signals.next() => {
                    if self.asked.replace(signal).is_some() {
                        return false;
                    }
                }
            }
        }
    }

    fn on_signal(&mut self, signal: i32) {
        if self.asked.replace(signal).is_none() {
            self.messages.asked(signal);
            self.supervisor.stopping();
            self.election.stop();
        }
    }

    fn on_event(&mut self, event: &EventKind) -> Result<(), Failure> {
        match event {
            // A store that denies the first call will not recover. A store that has worked may recover.
            EventKind::Error { error }
                if !self.store_works && error.store_error().is_some_and(|error| error.fault() == Fault::Denied) =>
            {
                self.denied = true;
                return Err(Failure::new(error_words(error)));
            }
            EventKind::LeaderChanged { .. } | EventKind::BecameLeader { .. } | EventKind::Recovered => {
                self.store_works = true;
                self.supervisor.ready();
            }
            _ => {}
        }
        self.supervisor.event(event, self.election.candidate());
        if let Some((url, location)) = self.location.take() {
            self.messages.location(&url, &location);
        }
        self.messages.event(event, self.election.candidate(), &self.verdict);
        Ok(())
    }

    /// Kills the guard and all processes that it guarded, and starts another guard.
    async fn replace_guard(&mut self) -> Result<(), Failure> {
        self.messages.guard_failed(self.guard.is_gone());
        self.guard.destroy().await;
        self.guards += 1;
        if self.guards > MAX_GUARDS {
            return Err(Failure::new(
                "the guard was killed too often; find the process that kills it, then start tenure again",
            ));
        }
        self.guard = start_guard(&self.election, &self.task.job, self.will.as_ref())?;
        self.job_control.iter().for_each(|control| control.follow(self.guard.orders()));
        Ok(())
    }

    /// Returns how long a guard that is stopped (SIGSTOP) at the end of a term stays stopped.
    fn longest_nap(&self) -> Duration {
        (self.grace / 8).max(Duration::from_millis(1))
    }

    fn kill_at(&self, deadline: Moment) -> u64 {
        (deadline - self.margin).as_nanos()
    }

    /// Returns how long to wait until a guard that has not killed everything counts as failed.
    fn overdue(&self, deadline: Moment, moved_at: u64) -> Duration {
        let due = (deadline - self.margin / 2).max(Moment::from_nanos(moved_at) + self.margin);
        due.since(Moment::from_nanos(now()))
    }

    fn exit_reason(&self, ended: Ended) -> ExitReason {
        match ended {
            Ended::GaveUp { after } => ExitReason::GaveUp { after },
            Ended::Claimed { by, token, done } => {
                self.messages.claimed(&by, token, done);
                ExitReason::Conflict { code: self.task.conflict_exit_code }
            }
            Ended::EngineGone => ExitReason::EngineGone,
            _ => ExitReason::Asked(self.asked, None),
        }
    }
}

/// Returns the next event. After the last event it never resolves.
async fn next(events: &mut Events) -> EventKind {
    match events.next().await {
        Some(event) => event.kind,
        None => std::future::pending().await,
    }
}

/// How long to wait for the guard to exit. It exits with this process in any case.
const GUARD_EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// How long to wait before the connections to the store are closed.
const CLOSE_DELAY: Duration = Duration::from_millis(10);

/// The number of guards that one `tenure run` starts at most. A healthy system never kills a guard.
const MAX_GUARDS: u32 = 100;

fn start_guard(election: &Election, job: &Job, will: Option<&OwnedFd>) -> Result<GuardHandle, Failure> {
    let variables = [("TENURE_ELECTION", election.name()), ("TENURE_CANDIDATE", &*election.candidate().id)];
    let guard = GuardHandle::start_guard(&job.plan(), &variables)
        .map_err(|error| Failure::new(format!("cannot start the guard: {error}")))?;
    // Joining a control group takes the kernel longer than all else, so it happens while the store is opened.
    guard.prepare();
    if let Some(will) = will {
        guard.keep_will(will.as_fd());
    }
    Ok(guard)
}

/// Returns the program of the command; of hooks alone, the shell.
fn program_of(job: &Job) -> OsString {
    job.command().into_iter().next().unwrap_or_else(|| "sh".into())
}
