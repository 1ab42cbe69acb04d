//! Health checks: user code that returns the health of a candidate.
//!
//! All checks of an `Elections` run on one separate thread, within a tokio runtime. The engine decides when a check
//! runs and how long it can take: a check that hangs costs its candidate the seat, and affects no other election.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tenure_protocol::{Input, Score, shared_pairs};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tracing::{Level, error};

use super::{Command, Driver, Due, ElectionId, EngineHandle, Timer};
use crate::clock::Busy;
use crate::handlers::panic_message;
use crate::{Metadata, Report, log, span};

type LocalCheck = Rc<dyn Fn() -> LocalBoxFuture<'static, Report>>;

/// A user's health check, which is sent to the thread that runs it.
pub(crate) struct Check(Box<dyn FnOnce() -> LocalCheck + Send>);

impl Check {
    pub(crate) fn new<R: Into<Report>>(check: impl AsyncFn() -> R + Send + 'static) -> Self {
        Self(Box::new(move || {
            let check = Rc::new(check);
            Rc::new(move || {
                let check = check.clone();
                async move { check().await.into() }.boxed_local()
            })
        }))
    }
}

enum Job {
    Add(ElectionId, Check),
    Run(ElectionId, Option<Busy>),
    Remove(ElectionId),
}

/// The thread that checks run on. It ends with the engine.
pub(super) struct CheckThread(mpsc::UnboundedSender<Job>);

impl CheckThread {
    fn start(handle: EngineHandle) -> std::io::Result<Self> {
        let (jobs, mut inbox) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (hand_over, handed_over) = std::sync::mpsc::sync_channel::<Runtime>(1);
        let thread = std::thread::Builder::new().name("tenure-checks".to_owned()).spawn(move || {
            let Ok(runtime) = handed_over.recv() else { return };
            LocalSet::new().block_on(&runtime, async move {
                let mut checks: BTreeMap<ElectionId, LocalCheck> = BTreeMap::new();
                while let Some(job) = inbox.recv().await {
                    match job {
                        Job::Add(election, check) => drop(checks.insert(election, check.0())),
                        Job::Remove(election) => drop(checks.remove(&election)),
                        Job::Run(election, busy) => {
                            if let Some(check) = checks.get(&election).cloned() {
                                run(election, check, &handle, busy).await;
                            }
                        }
                    }
                }
            });
        });
        if let Err(error) = thread {
            // Dropping the runtime here would panic, because this thread is within another runtime.
            runtime.shutdown_background();
            return Err(error);
        }
        let _ = hand_over.send(runtime);
        Ok(Self(jobs))
    }
}

/// Polls a check once, and spawns the rest of it. A manual clock waits only for the first poll, because the rest can
/// wait for that clock.
async fn run(election: ElectionId, check: LocalCheck, handle: &EngineHandle, busy: Option<Busy>) {
    let mut report = Box::pin(
        // Includes the call, because a check can panic before it returns a future.
        AssertUnwindSafe(async move { check().await }).catch_unwind(),
    );
    let report_of = |outcome: Result<Report, Box<dyn std::any::Any + Send>>| {
        outcome.unwrap_or_else(|panic| {
            let message = panic_message(&*panic).to_owned();
            log::emit(Level::ERROR, move || error!(message, "a health check panicked, which counts as a score of 0"));
            Report { score: 0.0, metadata: [("error", "the health check panicked")].into() }
        })
    };
    let handle = handle.clone();
    match futures_util::poll!(&mut report) {
        std::task::Poll::Ready(outcome) => drop(handle.send(Command::Checked { election, report: report_of(outcome) })),
        std::task::Poll::Pending => drop(tokio::task::spawn_local(async move {
            let report = report_of(report.await);
            handle.send(Command::Checked { election, report });
        })),
    }
    drop(busy);
}

/// The schedule of the health check of one election.
pub(super) struct Checking {
    /// The check, until it was sent to the thread.
    check: Option<Check>,
    every: Duration,
    timeout: Duration,
    /// Whether the check is running, and whether it has timed out.
    asked: bool,
    late: bool,
    timer: Option<Timer>,
    /// The election waits for the first result before it starts.
    first: bool,
}

impl Driver {
    /// Runs the check of a candidate for the first time. Its election starts with the result.
    pub(super) fn start_checks(&mut self, election: ElectionId, check: (Check, Duration, Duration)) {
        let (check, every, timeout) = check;
        let Some(entry) = self.entries.get_mut(&election) else { return };
        let check = Some(check);
        let checking = Checking { check, every, timeout, asked: false, late: false, timer: None, first: true };
        entry.checking = Some(Box::new(checking));
        self.check(election);
    }

    /// Runs the check of an election, unless it is still running.
    pub(super) fn check(&mut self, election: ElectionId) {
        let busy = self.clock.busy();
        let Some(checking) = self.entries.get_mut(&election).and_then(|entry| entry.checking.as_mut()) else { return };
        let thread = match &self.checks {
            Some(thread) => thread,
            None => match CheckThread::start(self.handle.clone()) {
                Ok(thread) => self.checks.insert(thread),
                // The next check tries again.
                Err(error) => {
                    let error = format!("there is no thread for health checks: {error}");
                    if checking.first {
                        let error = error.clone();
                        log::emit(Level::ERROR, move || {
                            error!(error, "health checks cannot run; the candidate counts as unhealthy")
                        });
                    }
                    let report = Report { score: 0.0, metadata: [("error", error)].into() };
                    return self.on_check_settled(election, report);
                }
            },
        };
        if let Some(check) = checking.check.take() {
            let _ = thread.0.send(Job::Add(election, check));
        }
        let until = self.clock.now() + checking.timeout;
        if !checking.asked {
            (checking.asked, checking.late) = (true, false);
            let _ = thread.0.send(Job::Run(election, busy));
        }
        self.set_check_timer(election, until, Due::CheckLate(election));
    }

    fn set_check_timer(&mut self, election: ElectionId, at: tenure_protocol::Moment, due: Due) {
        let timer = self.at(at, due);
        let Some(checking) = self.entries.get_mut(&election).and_then(|entry| entry.checking.as_mut()) else { return };
        if let Some(before) = checking.timer.replace(timer) {
            self.due.remove(&before);
        }
    }

    pub(super) fn on_checked(&mut self, election: ElectionId, report: Report) {
        let Some(checking) = self.entries.get_mut(&election).and_then(|entry| entry.checking.as_mut()) else { return };
        checking.asked = false;
        if std::mem::take(&mut checking.late) {
            // The time-out has already counted as 0, and the next check is due soon.
            return;
        }
        self.on_check_settled(election, report);
    }

    pub(super) fn on_check_late(&mut self, election: ElectionId) {
        let Some(checking) = self.entries.get_mut(&election).and_then(|entry| entry.checking.as_mut()) else { return };
        checking.late = true;
        let error = format!("the health check did not answer within {}", span::show(checking.timeout));
        self.on_check_settled(election, Report { score: 0.0, metadata: [("error", error)].into() });
    }

    fn on_check_settled(&mut self, election: ElectionId, report: Report) {
        let Some(checking) = self.entries.get_mut(&election).and_then(|entry| entry.checking.as_mut()) else { return };
        let next = self.clock.now() + checking.every;
        let first = std::mem::take(&mut checking.first);
        self.set_check_timer(election, next, Due::Check(election));
        let Report { score, metadata } = report;
        let wrong = |error: String| (Score::ZERO, Metadata::from([("error", error)]));
        let (score, metadata) = match (Score::new(score), Metadata::check(&metadata.0)) {
            (Some(score), Ok(())) => (score, metadata),
            (None, _) => wrong(format!("the health check returned {score}; it must return a number from 0 to 1")),
            (_, Err(error)) => wrong(format!("the health check: {error}")),
        };
        if first {
            // Announced only now: other candidates must not wait for a candidate that does not stand yet, nor hand
            // over to it.
            self.announce(election, score, metadata.clone());
        }
        self.on_report(election, score, metadata);
        if first {
            self.step(election, Input::Start);
        }
    }

    /// Applies a health report of a candidate.
    pub(super) fn on_report(&mut self, election: ElectionId, score: Score, metadata: Metadata) {
        let Some(entry) = self.entries.get(&election) else { return };
        if entry.announces {
            let seat = entry.shared.name.clone();
            self.change_notice(&seat, |standing| {
                standing.score = score;
                if *standing.reported != metadata.0 {
                    standing.reported = shared_pairs(metadata.0);
                }
            });
        }
        self.step(election, Input::Health(score));
    }

    pub(super) fn end_checks(&mut self, election: ElectionId, checking: &Checking) {
        if let Some(timer) = checking.timer {
            self.due.remove(&timer);
        }
        if let Some(thread) = &self.checks {
            let _ = thread.0.send(Job::Remove(election));
        }
    }
}
