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
mod messages;
mod program;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Election, ElectionOptions, Elections, Ended, EventKind, Events, Fault, Moment, Occasion, Term, Work};

use self::exit_reason::{ExitReason, exec_failure};
use self::health::{HealthCommand, Verdict};
use self::messages::Messages;
use crate::args::{Global, Job, OnLoss, Run};
use crate::failure::{Failure, error_words};
use crate::process::guard_handle::GuardHandle;
use crate::process::now;
use crate::process::signals::{self, Signals};
use crate::process::terminal;
use crate::process::wire::{Exit, GuardEvent};
use crate::setup::Setup;
use crate::supervisor::Supervisor;

pub(crate) async fn run(global: &Global, setup: &Setup, args: Run) -> Result<u8, Failure> {
    args.job.reject_doubtful("run", &raw_arguments())?;
    let task = Task {
        occasion: None,
        on_loss: args.on_loss,
        patience: args.patience.limit(),
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
    let program = task.job.command().swap_remove(0);
    if let Err(errno) = program::find(&program) {
        return exec_failure(errno.raw_os_error(), &program).into_code();
    }
    // This comes first, so that no signal is lost.
    let forwarded: Vec<Signal> = task.job.forward.iter().copied().map(signals::forwarded).collect();
    let leave: Vec<Signal> = signals::LEAVE.into_iter().filter(|signal| !forwarded.contains(signal)).collect();
    let (signals, forwarded) = (Signals::listen(&leave)?, Signals::listen(&forwarded)?);
    // Otherwise these would end this process.
    let _ignored = Signals::listen(&signals::PASS_ON)?;
    // Before the candidate stands: if it fails, no occasion is claimed in vain.
    let supervisor = Supervisor::new(task.job.ready_fd)?;
    let elections = setup.elections()?;
    let options = setup.options(&task.job.election).overlaid(task.job.overrides());
    let margin = margin(&options)?;
    let (election, verdict) = stand(&elections, &task, &options)?;
    let mut runner = Runner {
        events: election.events(),
        verdict,
        guard: start_guard(&election, &task.job)?,
        margin,
        messages: Messages::new(global, &task.job.election),
        location: setup.location(),
        store_works: false,
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
        let reason = runner.run().await?;
        runner.leave().await;
        Ok::<_, Failure>(reason)
    };
    let reason = tokio::select! {
        reason = work => reason?,
        never = watchdog => match never {},
    };
    // The guard exits first, so that no process is left when this one ends.
    runner.guard.close(GUARD_EXIT_TIMEOUT).await;
    // Closing the store's connections keeps a server busy for longer than a whole hand-over takes. So this waits
    // while the next leader starts, perhaps on the same machine.
    tokio::time::sleep(CLOSE_DELAY).await;
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

/// Returns how long before the end of the hold the command must be gone.
///
/// # Errors
/// If the lease is too short for that, or the durations contradict each other.
pub(crate) fn margin(options: &ElectionOptions) -> Result<Duration, Failure> {
    let lease = options.lease.unwrap_or(ElectionOptions::DEFAULT_LEASE);
    let margin = lease.div_f64(100.0).max(Duration::from_millis(50));
    let timing = options.durations()?.check().map_err(tenure::Error::from)?;
    if timing.drain() <= margin {
        // The command would be killed before it gets SIGTERM, or before it starts.
        return Err(Failure::new(format!(
            "a lease of {} is too short for a command to wrap up; use a lease of at least 400ms and a drain above {}",
            tenure::span::show(lease),
            tenure::span::show(margin)
        )));
    }
    Ok(margin)
}

struct Runner {
    task: Task,
    elections: Elections,
    election: Election,
    events: Events,
    guard: GuardHandle,
    /// Signals that ask `tenure` to hand over and leave.
    signals: Signals,
    /// Signals that are forwarded to the command while it runs.
    forwarded: Signals,
    supervisor: Supervisor,
    messages: Messages,
    /// The location of the seats, until it is printed.
    location: Option<String>,
    verdict: Verdict,
    /// How long before the end of the hold the command must be gone.
    margin: Duration,
    /// Whether the store has answered.
    store_works: bool,
    /// The number of guards started so far.
    guards: u32,
    /// The signal that asked this process to leave.
    asked: Option<i32>,
    /// When to leave if this candidate has never led.
    give_up_at: Option<tokio::time::Instant>,
}

/// The result of waiting for a term.
enum Waited {
    Elected(Term),
    Ended(Ended),
    /// Another candidate leads, or no candidate does, for longer than the user is willing to wait.
    InVain,
}

/// The result of running the command in one term.
enum Outcome {
    /// It ended without being asked to.
    Exited(Exit),
    /// It could not be executed.
    Failed { errno: i32 },
    /// It had to end with its term. Contains its exit status, if known.
    Stopped(Option<Exit>),
}

impl Runner {
    /// Runs the command in each term of this candidate, until there is a reason to exit.
    async fn run(&mut self) -> Result<ExitReason, Failure> {
        loop {
            let term = match self.wait().await? {
                Waited::Elected(term) => term,
                Waited::Ended(ended) => return Ok(self.exit_reason(ended)),
                Waited::InVain => return Ok(self.conflict()),
            };
            self.give_up_at = None;
            // If a signal asked to leave meanwhile, or the term is ending, the command is not started.
            let Some(work) = self.asked.is_none().then(|| term.begin_work()).flatten() else {
                self.await_end(&term).await?;
                if self.asked.is_none() && self.task.on_loss == OnLoss::Exit {
                    return Ok(ExitReason::Lost);
                }
                continue;
            };
            match self.lead(&term, work).await? {
                Outcome::Failed { errno } => return Ok(exec_failure(errno, &self.task.job.command()[0])),
                Outcome::Exited(exit) => return Ok(ExitReason::Exited(exit)),
                Outcome::Stopped(exit) if self.asked.is_some() => return Ok(ExitReason::Asked(self.asked, exit)),
                Outcome::Stopped(_) if self.task.on_loss == OnLoss::Exit => return Ok(ExitReason::Lost),
                Outcome::Stopped(_) => self.await_end(&term).await?,
            }
        }
    }

    /// Waits for the next term, for as long as the user is willing to.
    async fn wait(&mut self) -> Result<Waited, Failure> {
        if self.asked.is_none() {
            self.guard.prepare();
        }
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.on_signal(signal),
                // No command runs. Ctrl-C and Ctrl-\ ask this process to leave; other signals are ignored.
                signal = self.forwarded.next() => {
                    if [Signal::INT, Signal::QUIT].iter().any(|typed| typed.as_raw() == signal) {
                        self.on_signal(signal);
                    }
                }
                event = next(&mut self.events) => {
                    if self.is_in_vain(&event)? {
                        return Ok(Waited::InVain);
                    }
                    self.on_event(&event)?;
                }
                event = self.guard.event() => {
                    if event.is_none() {
                        self.replace_guard().await?;
                        self.guard.prepare();
                    }
                }
                term = self.election.elected() => return Ok(term.map_or_else(Waited::Ended, Waited::Elected)),
                () = sleep_until(self.give_up_at), if !self.gives_up_at_once() => return Ok(Waited::InVain),
            }
        }
    }

    /// Returns whether the user does not want to wait at all (`--no-wait`), and this candidate has never led.
    fn gives_up_at_once(&self) -> bool {
        self.give_up_at.is_some() && self.task.patience == Some(Duration::ZERO)
    }

    /// Returns whether this event shows that a user who does not want to wait would have to.
    ///
    /// # Errors
    /// If the store failed, so that it is unknown whether another candidate leads.
    fn is_in_vain(&self, event: &EventKind) -> Result<bool, Failure> {
        match event {
            _ if !self.gives_up_at_once() => Ok(false),
            EventKind::Error { error } => Err(Failure::new(error_words(error))),
            EventKind::LeaderChanged { leader: Some(leader), .. } => Ok(leader.candidate != *self.election.candidate()),
            _ => Ok(false),
        }
    }

    /// Returns the reason to leave after waiting in vain.
    fn conflict(&self) -> ExitReason {
        let code = self.task.conflict_exit_code;
        match self.election.leader() {
            Some(leader) => {
                self.messages.led_by(&leader);
                ExitReason::Conflict { code }
            }
            None => {
                let problem = "no candidate leads yet, and the time of --wait is up; check `tenure candidates`";
                ExitReason::NotExecuted(Failure::new(problem))
            }
        }
    }

    /// Runs the command for this term, and returns when no process of it is left.
    async fn lead(&mut self, term: &Term, work: Work) -> Result<Outcome, Failure> {
        let mut deadline = term.deadline();
        let mut moved_at = now();
        let mut progress = Progress::default();
        let started = self.start(term.token().get(), deadline)?;
        let reliable = started
            && loop {
                let overdue = self.overdue(deadline, moved_at);
                tokio::select! {
                    biased;
                    signal = self.signals.next() => {
                        let again = self.asked.is_some();
                        self.on_signal(signal);
                        if again && !self.guard.kill_at(0) {
                            break false;
                        }
                    }
                    signal = self.forwarded.next() => self.guard.pass_on(signal),
                    moved = term.deadline_moved(deadline) => {
                        (deadline, moved_at) = (moved, now());
                        if !self.guard.kill_at(self.kill_at(deadline)) {
                            break false;
                        }
                    }
                    () = term.ending(), if !progress.stopping => {
                        progress.stopping = true;
                        self.guard.stop();
                    }
                    event = self.guard.event() => match event {
                        None => break false,
                        Some(GuardEvent::Gone) => break true,
                        Some(event) => if progress.update(event) {
                            if self.task.occasion.is_some() {
                                term.finish();
                            }
                            // Processes that it has left behind end with the term.
                            self.election.stop();
                        }
                    },
                    // The guard should have killed everything by then, so it has failed.
                    () = tokio::time::sleep(overdue) => break false,
                    event = next(&mut self.events) => self.on_event(&event)?,
                }
            };
        if !reliable {
            self.replace_guard().await?;
        }
        // The command is gone, but the engine would continue to lead. Releasing the seat lets this candidate bid again
        // at once. After stepping down it would leave the seat to others for two leases, and there may be none.
        if !progress.stopping && !progress.ended_unasked && progress.failed.is_none() && term.is_current() {
            self.election.release();
        }
        // The engine can release the seat only now.
        drop(work);
        Ok(progress.outcome())
    }

    /// Starts the command with the standard streams of this process. Returns whether the guard still works.
    ///
    /// # Errors
    /// If the guard cannot be given the lifeline: without it, the seat could be free before the command has ended.
    fn start(&mut self, token: u64, deadline: Moment) -> Result<bool, Failure> {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let dev_null = terminal::is_in_background().then(|| File::open("/dev/null").ok()).flatten();
        let stdin = dev_null.as_ref().map_or(stdin.as_fd(), AsFd::as_fd);
        let streams = [stdin, stdout.as_fd(), stderr.as_fd()];
        // Read while the term has work, so the lifeline belongs to this term.
        let lifeline = self.election.lifeline().map_err(|error| {
            let what = "command not started: cannot duplicate the descriptor that holds the seat";
            Failure::new(format!("{what}: {error}; raise the limit of open files (ulimit -n)"))
        })?;
        Ok(self.guard.start(Some(token), self.kill_at(deadline), streams, lifeline.as_ref().map(AsFd::as_fd)))
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

    /// Leaves the election and waits until the seat is released. A signal cuts the wait short.
    async fn leave(&mut self) {
        self.election.stop();
        loop {
            tokio::select! {
                biased;
                () = self.elections.stopped() => return,
                signal = self.signals.next() => {
                    if self.asked.replace(signal).is_some() {
                        return;
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
                return Err(Failure::new(error_words(error)));
            }
            EventKind::LeaderChanged { .. } | EventKind::BecameLeader { .. } | EventKind::Recovered => {
                self.store_works = true;
                self.supervisor.ready();
            }
            _ => {}
        }
        self.supervisor.event(event, self.election.candidate());
        if let Some(store) = self.location.take() {
            self.messages.location(&store);
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
        self.guard = start_guard(&self.election, &self.task.job)?;
        Ok(())
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

/// Waits until this moment; without one, forever.
async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
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

fn start_guard(election: &Election, job: &Job) -> Result<GuardHandle, Failure> {
    let variables = [("TENURE_ELECTION", election.name()), ("TENURE_CANDIDATE", &*election.candidate().id)];
    GuardHandle::start_guard(&job.command(), &variables)
        .map_err(|error| Failure::new(format!("cannot start the guard: {error}")))
}

/// The state of a command so far.
#[derive(Default)]
struct Progress {
    /// It was asked to end.
    stopping: bool,
    /// The guard has killed it at its deadline.
    killed: bool,
    /// It ended before it was asked to.
    ended_unasked: bool,
    exit: Option<Exit>,
    failed: Option<i32>,
}

impl Progress {
    /// Processes an event of the guard. Returns whether the command has just ended without being asked to.
    fn update(&mut self, event: GuardEvent) -> bool {
        match event {
            GuardEvent::TimeUp => self.killed = true,
            GuardEvent::Failed { errno } => self.failed = Some(errno),
            GuardEvent::Exited(exit) => {
                self.exit = Some(exit);
                self.ended_unasked = !self.stopping && !self.killed;
                return self.ended_unasked;
            }
            _ => {}
        }
        false
    }

    fn outcome(&self) -> Outcome {
        match (self.failed, self.exit) {
            (Some(errno), _) => Outcome::Failed { errno },
            (None, Some(exit)) if self.ended_unasked => Outcome::Exited(exit),
            (None, exit) => Outcome::Stopped(exit),
        }
    }
}
