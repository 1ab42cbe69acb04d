//! `tenure run`: a command that runs while this candidate leads.
//!
//! ```text
//!               elected               ending                    gone
//!  tenure  waits ──▶ start, kill-at … ──▶ stop, kill-at ──────────▶ the seat is released ──▶ waits
//!  guard   waits ──▶ spawns CMD ────────▶ SIGTERM … SIGKILL ──▶ gone
//! ```
//!
//! The command counts as work of the term until the guard has said that nothing is left of it, so the
//! engine does not give up the seat before that. What the guard is told to enforce is the moment that
//! the engine counts on, moved with every renewal, less a margin.

mod health;
mod leave;
mod tell;

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use tenure::{Election, ElectionOptions, Elections, Ended, Event, Events, Fault, Moment, Term, Work};

use self::health::{HealthCommand, Verdict};
use self::leave::{Leave, exec_failure};
use self::tell::Teller;
use crate::args::{Global, OnLoss, Run};
use crate::failure::{Failure, store_error};
use crate::process::keeper::Keeper;
use crate::process::now;
use crate::process::signals::{self, Signals};
use crate::process::terminal;
use crate::process::wire::{Exit, News};
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: Run) -> Result<u8, Failure> {
    // First of all, so that no signal is lost.
    let signals = Signals::listen(&signals::LEAVE)?;
    let passed_on = Signals::listen(&signals::PASS_ON)?;
    let elections = setup.elections()?;
    let options = setup.options(&args.election).overlaid(args.overrides());
    let margin = margin(&options)?;
    let (election, verdict) = stand(&elections, &args, &options)?;
    let mut runner = Runner {
        events: election.events(),
        verdict,
        keeper: start_guard(&election, &args)?,
        margin,
        teller: Teller::new(global, &args.election),
        whereabouts: setup.whereabouts(),
        works: false,
        guards: 1,
        asked: None,
        elections,
        election,
        signals,
        passed_on,
        args,
    };
    let leave = runner.run().await?;
    // Whatever is left of the candidacy ends in good order.
    runner.part().await;
    // So does the guard: whoever waits for this process finds nothing left of it.
    runner.keeper.part(PARTING).await;
    // What the store has open is closed a little later. That keeps a server busy for longer than a whole
    // hand-over takes, and the next leader is just starting, perhaps on the same machine.
    tokio::time::sleep(COURTESY).await;
    leave.into_code()
}

/// Stands for the election.
fn stand(elections: &Elections, args: &Run, options: &ElectionOptions) -> Result<(Election, Verdict), Failure> {
    let health = HealthCommand::new(args, options)?;
    let verdict = health.as_ref().map(HealthCommand::verdict).unwrap_or_default();
    let mut builder = elections.election(&args.election).options(options.clone());
    let mut tell_candidate = None;
    if let Some(health) = health {
        tell_candidate = Some(health.candidate());
        builder = builder.health_timeout(health.latest()).health(async move || health.ask().await);
    }
    let election = builder.start()?;
    if let Some(tell) = tell_candidate {
        let _ = tell.set(election.candidate().id.clone());
    }
    Ok((election, verdict))
}

/// How long before the end of the hold nothing may be left of the command.
///
/// # Errors
/// If the lease is too short for that, or the durations do not fit together.
pub(crate) fn margin(options: &ElectionOptions) -> Result<Duration, Failure> {
    let lease = options.lease.unwrap_or(ElectionOptions::DEFAULT_LEASE);
    let margin = lease.div_f64(100.0).max(Duration::from_millis(50));
    let timing = options.durations()?.check().map_err(tenure::Error::from)?;
    if timing.drain() <= margin {
        // The command would be killed before it could be asked to end, or before it began.
        return Err(Failure::new(format!(
            "a lease of {} is too short for a command to wrap up in: ask for 400ms or more, and a drain above {}",
            tenure::span::show(lease),
            tenure::span::show(margin)
        )));
    }
    Ok(margin)
}

struct Runner {
    args: Run,
    elections: Elections,
    election: Election,
    events: Events,
    keeper: Keeper,
    /// Signals that ask `tenure` to hand over and leave.
    signals: Signals,
    /// Signals that are passed on to the command.
    passed_on: Signals,
    teller: Teller,
    /// Where the seats are, until that is told.
    whereabouts: Option<String>,
    verdict: Verdict,
    /// How long before the end of the hold nothing may be left.
    margin: Duration,
    /// The store has answered.
    works: bool,
    /// How many were started.
    guards: u32,
    /// The signal that asked to leave.
    asked: Option<i32>,
}

/// What has become of a command.
enum Outcome {
    /// It has ended by itself.
    Exited(Exit),
    /// It could not be executed.
    Failed { errno: i32 },
    /// It had to end with its term. How it did, if that is known.
    Stopped(Option<Exit>),
}

impl Runner {
    /// From term to term, until there is a reason to leave.
    async fn run(&mut self) -> Result<Leave, Failure> {
        loop {
            let term = match self.wait().await? {
                Ok(term) => term,
                Err(ended) => return Ok(self.left(ended)),
            };
            // Asked to leave in between, or the term is ending: nothing is started any more.
            let Some(work) = self.asked.is_none().then(|| term.begin_work()).flatten() else {
                self.await_end(&term).await?;
                continue;
            };
            match self.lead(&term, work).await? {
                Outcome::Failed { errno } => return Ok(exec_failure(errno, &self.args.command[0])),
                Outcome::Exited(exit) => return Ok(Leave::Exited(exit)),
                Outcome::Stopped(exit) if self.asked.is_some() => return Ok(Leave::Asked(self.asked, exit)),
                Outcome::Stopped(_) if self.args.on_loss == OnLoss::Exit => return Ok(Leave::Lost),
                Outcome::Stopped(_) => self.await_end(&term).await?,
            }
        }
    }

    /// Waits for a term.
    async fn wait(&mut self) -> Result<Result<Term, Ended>, Failure> {
        if self.asked.is_none() {
            self.keeper.prepare();
        }
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.on_signal(signal),
                // No command runs that it could be for.
                _ = self.passed_on.next() => {}
                event = next(&mut self.events) => self.on_event(&event)?,
                news = self.keeper.news() => {
                    if news.is_none() {
                        self.replace_guard().await?;
                        self.keeper.prepare();
                    }
                }
                term = self.election.elected() => return Ok(term),
            }
        }
    }

    /// Has the command run, and returns when nothing is left of it.
    async fn lead(&mut self, term: &Term, work: Work) -> Result<Outcome, Failure> {
        let mut deadline = term.deadline();
        let mut moved_at = now();
        let mut course = Course::default();
        let started = self.start(term.token().get(), deadline)?;
        let reliable = started
            && loop {
                let overdue = self.overdue(deadline, moved_at);
                tokio::select! {
                    biased;
                    signal = self.signals.next() => {
                        let again = self.asked.is_some();
                        self.on_signal(signal);
                        if again && !self.keeper.kill_at(0) {
                            break false;
                        }
                    }
                    signal = self.passed_on.next() => self.keeper.pass_on(signal),
                    moved = term.deadline_moved(deadline) => {
                        (deadline, moved_at) = (moved, now());
                        if !self.keeper.kill_at(self.kill_at(deadline)) {
                            break false;
                        }
                    }
                    () = term.ending(), if !course.stopping => {
                        course.stopping = true;
                        self.keeper.stop();
                    }
                    news = self.keeper.news() => match news {
                        None => break false,
                        Some(News::Gone) => break true,
                        Some(news) => if course.ends_by_itself(news) {
                            // What it has left behind ends with the term.
                            self.election.stop();
                        }
                    },
                    // The guard should have done it by then.
                    () = tokio::time::sleep(overdue) => break false,
                    event = next(&mut self.events) => self.on_event(&event)?,
                }
            };
        if !reliable {
            self.replace_guard().await?;
        }
        // The command is gone, but the engine would go on leading. Stepping down would leave the seat to others for two
        // leases, and there may be none.
        if !course.stopping && !course.by_itself && course.failed.is_none() && term.is_current() {
            self.election.release();
        }
        // Only now may the seat be released.
        drop(work);
        Ok(course.outcome())
    }

    /// Has the command run, with the streams of this process. Returns whether the guard can be counted on.
    ///
    /// # Errors
    /// If the guard cannot be given the lifeline: the seat could be free before the command has ended.
    fn start(&mut self, token: u64, deadline: Moment) -> Result<bool, Failure> {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let nothing = terminal::is_in_background().then(|| File::open("/dev/null").ok()).flatten();
        let stdin = nothing.as_ref().map_or(stdin.as_fd(), AsFd::as_fd);
        let streams = [stdin, stdout.as_fd(), stderr.as_fd()];
        // Read while the term has work, so it belongs to this term.
        let lifeline = self.election.lifeline().map_err(|error| {
            let why = "the command was not started, as its guard cannot hold the seat";
            Failure::new(format!("{why}: {error}: raise the limit of open files (ulimit -n)"))
        })?;
        Ok(self.keeper.start(Some(token), self.kill_at(deadline), streams, lifeline.as_ref().map(AsFd::as_fd)))
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

    /// Leaves the election. A signal cuts it short.
    async fn part(&mut self) {
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
            self.teller.asked(signal);
            self.election.stop();
        }
    }

    fn on_event(&mut self, event: &Event) -> Result<(), Failure> {
        match event {
            // What will never work is told at once; what once has worked may work again.
            Event::Error { error } if error.fault() == Fault::Denied && !self.works => {
                return Err(Failure::new(store_error(error)));
            }
            Event::LeaderChanged { .. } | Event::BecameLeader { .. } | Event::Recovered => self.works = true,
            _ => {}
        }
        if let Some(store) = self.whereabouts.take() {
            self.teller.whereabouts(&store);
        }
        self.teller.event(event, self.election.candidate(), &self.verdict);
        Ok(())
    }

    /// Makes sure that nothing is left of a guard and what it guarded, and starts another.
    async fn replace_guard(&mut self) -> Result<(), Failure> {
        self.teller.guard_failed(self.keeper.is_gone());
        self.keeper.destroy().await;
        self.guards += 1;
        if self.guards > MOST_GUARDS {
            return Err(Failure::new("the guard was killed again and again: find out by whom, and start again"));
        }
        self.keeper = start_guard(&self.election, &self.args)?;
        Ok(())
    }

    fn kill_at(&self, deadline: Moment) -> u64 {
        (deadline - self.margin).as_nanos()
    }

    /// How long to wait for a guard that should have killed everything by now.
    fn overdue(&self, deadline: Moment, moved_at: u64) -> Duration {
        let due = (deadline - self.margin / 2).max(Moment::from_nanos(moved_at) + self.margin);
        due.since(Moment::from_nanos(now()))
    }

    fn left(&self, ended: Ended) -> Leave {
        match ended {
            Ended::GaveUp { after } => Leave::GaveUp { after },
            Ended::EngineGone => Leave::EngineGone,
            _ => Leave::Asked(self.asked, None),
        }
    }
}

/// The next event; never, after the last.
async fn next(events: &mut Events) -> Event {
    match events.next().await {
        Some(event) => event,
        None => std::future::pending().await,
    }
}

/// How long a guard may take to leave. It ends with this process in any case.
const PARTING: Duration = Duration::from_millis(200);

/// How long the next leader is left alone with the store.
const COURTESY: Duration = Duration::from_millis(10);

/// So many guards are started in the life of one `tenure run`: killing them is not for every day.
const MOST_GUARDS: u32 = 100;

fn start_guard(election: &Election, args: &Run) -> Result<Keeper, Failure> {
    let variables = [("TENURE_ELECTION", election.name()), ("TENURE_CANDIDATE", &*election.candidate().id)];
    Keeper::start_guard(&args.command, &variables)
        .map_err(|error| Failure::new(format!("the guard could not be started: {error}")))
}

/// What has become of a command so far.
#[derive(Default)]
struct Course {
    /// It was asked to end.
    stopping: bool,
    /// The guard has killed it.
    cut: bool,
    by_itself: bool,
    exit: Option<Exit>,
    failed: Option<i32>,
}

impl Course {
    /// Takes in what the guard tells. Returns whether the command has ended by itself.
    fn ends_by_itself(&mut self, news: News) -> bool {
        match news {
            News::Cut => self.cut = true,
            News::Failed { errno } => self.failed = Some(errno),
            News::Exited(exit) => {
                self.exit = Some(exit);
                self.by_itself = !self.stopping && !self.cut;
                return self.by_itself;
            }
            _ => {}
        }
        false
    }

    fn outcome(&self) -> Outcome {
        match (self.failed, self.exit) {
            (Some(errno), _) => Outcome::Failed { errno },
            (None, Some(exit)) if self.by_itself => Outcome::Exited(exit),
            (None, exit) => Outcome::Stopped(exit),
        }
    }
}
