//! The guard: kills a command and all its descendants before the end of the term.
//!
//! The guard has one thread, and one timer for the end of the term. It waits for
//!
//! - orders from tenure; if tenure is gone, the guard kills everything and exits
//! - the end of the term; then it kills everything
//! - the end of children, announced by SIGCHLD
//!
//! and reports to tenure what happens to the command. It reports `Gone`, or exits, only when *no* process of the
//! command is left. Until then it keeps the lifeline open: the lock file, or the socket of the session, that holds the
//! seat. While the lifeline is open, the death of tenure does not free the seat. A store without a lifeline holds the
//! seat of a dead leader until its lease expires or its last will is executed. The guard is done before that: when
//! tenure was killed, and no process of the command is left, the guard executes the will (`will.rs`). It does so even if
//! no command has run: tenure may have died right after it had won the seat.
//!
//! With hooks, a term has stages (`plan.rs`). The hook for the end runs in all these cases, when everything else is
//! dead, and before the end of the term:
//!
//! ```text
//!             tenure orders the stop     everything is killed    everything is killed
//!  on-start ▸ CMD ──────┼──── SIGTERM ─────────────┼──────── on-stop ────────┤ end of the term, less a margin
//!                       ╰────────── half ──────────┴───────── half ──────────╯ of the time to wrap up
//! ```

mod job;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, kill_process_group, set_parent_process_death_signal, setsid, wait,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};

use self::job::Job;
use super::cgroup::Cgroup;
use super::family::Remaining;
use super::plan::{Plan, Stage};
use super::shim::{Place, Shim};
use super::will::Mortal;
use super::wire::{Exit, GuardEvent, Hook, Order, Received};
use super::{GUARD_NAME, family, ignored_signals, now, will, wire};

/// Runs the guard: `PARENT_PID STAMP PLAN…`. Standard input is the connection to tenure.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let stamp = args.next().unwrap_or_default();
    let code = match Guard::new(parent, stamp, Plan::from_args(args)) {
        Ok(mut guard) => {
            guard.run();
            0
        }
        Err(error) => {
            crate::stderr::line(format!("tenure: cannot start the guard: {error}"));
            crate::stderr::flush();
            2
        }
    };
    std::process::exit(code)
}

struct Guard {
    plan: Plan,
    socket: std::io::Stdin,
    /// Tenure is gone: there are no more orders.
    is_alone: bool,
    /// Becomes readable when a child has ended.
    ended: UnixStream,
    /// Becomes readable when the term is over.
    timer: OwnedFd,
    prepared: Option<PreparedShim>,
    job: Option<Job>,
    /// More children may have ended than were reaped.
    unreaped: bool,
    /// Names the control groups of this guard, together with its process id.
    stamp: OsString,
    /// The process of tenure, if the system can prove its death.
    tenure: Option<Mortal>,
    /// The last will of tenure's candidate, unless its seat is freed without one.
    will: Option<OwnedFd>,
}

/// A shim that waits for its start message, and the control group that it has joined.
struct PreparedShim {
    shim: Shim,
    cgroup: Option<Cgroup>,
}

impl PreparedShim {
    /// Starts a shim for the first program of a term.
    fn start(plan: &Plan, stamp: &OsStr) -> std::io::Result<Self> {
        let cgroup = Cgroup::make(stamp);
        let procs_file = cgroup.as_ref().map(Cgroup::procs_file).unwrap_or_default();
        let first = plan.first();
        Ok(Self { shim: Shim::start(&procs_file, plan.words(first), place(plan, first), |_| {})?, cgroup })
    }
}

/// Returns where the program of a stage runs.
fn place(plan: &Plan, stage: Stage) -> Place {
    if plan.tty && stage == Stage::Command { Place::OwnTerminal } else { Place::OwnGroup }
}

impl Guard {
    fn new(parent: Option<Pid>, stamp: OsString, plan: Plan) -> std::io::Result<Self> {
        // This comes first: signals that end a whole service or terminal are for tenure to handle. The command does
        // not inherit these empty handlers, as it would inherit ignored signals. Signals that were ignored from the
        // start (`nohup`) stay ignored, for the command as well.
        let ignored = ignored_signals();
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2] {
            if !ignored.contains(signal) {
                signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
            }
        }
        // The death of tenure resumes a stopped guard, which then finds its connection closed.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        let tenure = parent.and_then(Mortal::watch);
        if getppid() != parent {
            // The parent died before the kernel was asked to watch it. No command runs yet.
            std::process::exit(0);
        }
        let (ended, wake) = UnixStream::pair()?;
        ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, wake)?;
        setsid()?;
        family::adopt_orphans()?;
        let _ = rustix::thread::set_name(GUARD_NAME);
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let guard = Self {
            plan,
            socket: std::io::stdin(),
            is_alone: false,
            ended,
            timer,
            prepared: None,
            job: None,
            unreaped: false,
            stamp,
            tenure,
            will: None,
        };
        guard.send(GuardEvent::Ready);
        Ok(guard)
    }

    fn run(&mut self) {
        loop {
            self.wait();
            // The deadline comes first: incoming orders must not delay it.
            self.enforce_deadline();
            loop {
                match wire::next_order(&self.socket) {
                    Received::Nothing => break,
                    Received::Message(order, descriptors) => self.handle_order(order, descriptors),
                    Received::Closed => return self.leave(),
                }
            }
            self.check_children();
        }
    }

    /// Kills everything if the deadline has passed.
    fn enforce_deadline(&mut self) {
        if self.job.as_ref().is_some_and(|job| now() >= job.work_until()) {
            self.send(GuardEvent::TimeUp);
            self.kill();
        }
    }

    /// Sleeps until something happens.
    fn wait(&self) {
        let mut sources = vec![PollFd::new(&self.ended, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        if !self.is_alone {
            sources.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        if let Some(shim) = self.job.as_ref().and_then(|job| job.shim.as_ref()) {
            sources.push(PollFd::new(shim, PollFlags::IN));
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If a signal interrupts the poll, the loop checks everything, which does no harm.
        let _ = poll(&mut sources, self.unreaped.then_some(&at_once));
    }

    fn handle_order(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        match order {
            Order::KeepWill => self.will = descriptors.into_iter().next(),
            Order::Settled => self.will = None,
            Order::Prepare => {
                if self.job.is_none() && self.prepared.is_none() {
                    // If this fails, the shim is started when it is needed.
                    self.prepared = PreparedShim::start(&self.plan, &self.stamp).ok();
                }
            }
            Order::Start { token, kill_at, grace } => {
                if self.job.is_some() || now() >= kill_at {
                    self.send(GuardEvent::TimeUp);
                    return self.send(GuardEvent::Gone);
                }
                let started = self.start(token, kill_at, grace, descriptors);
                self.report_start(started);
            }
            Order::OnStop { token, kill_at } => {
                if self.job.is_some() || now() >= kill_at {
                    return self.send(GuardEvent::Gone);
                }
                // A prepared shim would count as a process of the term. It ends when its connection is closed.
                self.prepared = None;
                let started = Job::new(&self.plan, token, kill_at, 0, Cgroup::make(&self.stamp), descriptors);
                self.report_start(started.map_err(Into::into));
                self.enter(Stage::OnStop);
            }
            Order::KillAt(moment) => {
                if let Some(job) = &mut self.job {
                    job.kill_at = moment;
                    self.set_timer();
                }
                self.send(GuardEvent::Acknowledged);
                self.enforce_deadline();
            }
            Order::Stop => {
                if let Some(job) = &mut self.job {
                    job.terminate();
                }
            }
            Order::Expire => {
                if let Some(job) = &mut self.job
                    && !job.can_work_on()
                {
                    job.terminate();
                }
            }
            Order::Kill => {
                if self.job.as_ref().is_some_and(|job| job.stage != Stage::OnStop) {
                    self.send(GuardEvent::TimeUp);
                    self.kill();
                }
            }
            Order::PassOn(signal) => {
                if let Some(job) = &mut self.job {
                    job.pass_on(signal);
                }
            }
        }
    }

    fn report_start(&mut self, started: std::io::Result<Job>) {
        match started {
            Ok(job) => {
                self.job = Some(job);
                self.report_stage();
            }
            Err(error) => {
                self.send(GuardEvent::Failed { errno: error.raw_os_error().unwrap_or(0) });
                self.send(GuardEvent::Gone);
            }
        }
    }

    /// Reports the process of a stage that has begun.
    fn report_stage(&self) {
        if let Some(group) = self.job.as_ref().and_then(|job| job.group) {
            self.send(GuardEvent::Started { pid: group.as_raw_nonzero().get() });
        }
        self.set_timer();
    }

    fn start(
        &mut self,
        token: Option<u64>,
        kill_at: u64,
        grace: u64,
        descriptors: Vec<OwnedFd>,
    ) -> std::io::Result<Job> {
        let first = self.plan.first();
        let new = || PreparedShim::start(&self.plan, &self.stamp);
        let prepared = self.prepared.take().map_or_else(new, Ok)?;
        let mut job = Job::new(&self.plan, token, kill_at, grace, prepared.cgroup, descriptors)?;
        if job.enter(first, prepared.shim).is_err() {
            // The shim was killed while it waited.
            let shim = job.shim(&self.plan.words(first), place(&self.plan, first))?;
            job.enter(first, shim)?;
        }
        Ok(job)
    }

    /// Starts the next stage of the term.
    fn enter(&mut self, stage: Stage) {
        let Some(job) = &mut self.job else { return };
        let words = self.plan.words(stage);
        if words.is_empty() {
            (job.stage, job.main, job.group) = (stage, None, None);
            return self.set_timer();
        }
        let entered = job.shim(&words, place(&self.plan, stage)).and_then(|shim| job.enter(stage, shim));
        if let Err(error) = entered {
            // A hook for the end is not tried twice.
            if stage == Stage::OnStop {
                job.stage = stage;
            }
            self.send(GuardEvent::Failed { errno: error.raw_os_error().unwrap_or(0) });
            return self.kill();
        }
        self.report_stage();
    }

    /// Reaps children that have ended and reports what happened to the command.
    fn check_children(&mut self) {
        let _ = (&self.ended).read(&mut [0; 64]);
        let Some(job) = &mut self.job else {
            let prepared = self.prepared.as_ref().map(|prepared| prepared.shim.pid);
            let remaining = family::reap(family::BATCH, |pid, _| {
                if prepared == Some(pid) {
                    self.prepared = None;
                }
            });
            self.unreaped = remaining == Remaining::Unreaped;
            return;
        };
        let (event, remaining) = job.reap(family::BATCH);
        self.unreaped = remaining == Remaining::Unreaped;
        // Only after all ended children are reaped: a fork storm leaves so many that the list would be too long.
        if job.stopping && job.stage != Stage::OnStop && remaining == Remaining::Alive {
            job.terminate_orphans();
        }
        match event {
            Some(event @ GuardEvent::HookEnded(Hook::OnStart, Exit::Code(0))) if !job.stopping => {
                let second = self.plan.second();
                if second == Stage::Idle {
                    self.send(event);
                }
                return self.enter(second);
            }
            // After the hook for the end, nothing of the term has time left. If a program cannot be executed, what the
            // hook before it has left behind has nothing to wait for.
            Some(event @ (GuardEvent::HookEnded(Hook::OnStop, _) | GuardEvent::Failed { .. })) => {
                self.send(event);
                return self.kill();
            }
            Some(event) => self.send(event),
            None => {}
        }
        if remaining == Remaining::None {
            self.no_process_left();
        }
    }

    /// Begins the next stage of a term that has no process, or ends the term.
    fn no_process_left(&mut self) {
        match &self.job {
            Some(job) if job.stage == Stage::Idle && !job.stopping => {}
            Some(job) if job.owes_on_stop() && now() < job.kill_at => self.enter(Stage::OnStop),
            _ => self.gone(),
        }
    }

    /// Kills everything. Returns when no process is left, except for the hook for the end, if there is time for it.
    fn kill(&mut self) {
        let Some(job) = &mut self.job else { return };
        job.stopping = true;
        let mut pause = 1_000_000;
        // Processes fork and exit faster than one call reaps them.
        let mut storm = false;
        loop {
            if let Some(cgroup) = &job.cgroup {
                cgroup.kill();
            }
            if let (Some(_), Some(group)) = (job.main, job.group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            if storm {
                family::kill(family::newest());
            }
            let (event, remaining) = job.reap(family::SMALL_BATCH);
            if let Some(event) = event {
                let _ = wire::send(&self.socket, &event.to_string(), &[]);
            }
            match remaining {
                Remaining::None => return self.no_process_left(),
                Remaining::Alive => family::kill(family::children()),
                Remaining::Unreaped => {
                    storm = true;
                    continue;
                }
            }
            // Waits for the next child to end, but not long: killed processes may still be dying.
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause };
            let _ = poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&timeout));
            let _ = (&self.ended).read(&mut [0; 64]);
            pause = (pause * 2).min(50_000_000);
        }
    }

    /// Kills everything, including a prepared shim. The hook for the end still runs, or continues.
    fn leave(&mut self) {
        self.is_alone = true;
        let (led, died) = (self.job.is_some(), Instant::now());
        if self.job.as_ref().is_some_and(|job| job.stage != Stage::OnStop) {
            self.kill();
        }
        while self.job.is_some() {
            self.wait();
            self.enforce_deadline();
            self.check_children();
        }
        if let Some(prepared) = self.prepared.take() {
            let _ = kill_process(prepared.shim.pid, Signal::KILL);
            while matches!(wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
        }
        self.execute_will(led, died);
    }

    /// Frees the seat of a tenure that was killed. No process of the command is left.
    fn execute_will(&mut self, led: bool, died: Instant) {
        if let Some(will) = self.will.take()
            // A closed connection alone proves nothing: tenure may be alive, and may hand over in order.
            && self.tenure.as_ref().is_some_and(Mortal::is_dead)
        {
            will::execute(&will, led, died);
        }
    }

    fn gone(&mut self) {
        // First: tenure releases the seat, and needs nothing of what is left, a control group without processes.
        self.send(GuardEvent::Gone);
        self.job = None;
        self.set_timer();
    }

    /// Sets the timer to the next deadline, or disarms it.
    fn set_timer(&self) {
        // Zero disarms the timer.
        let moment = self.job.as_ref().map_or(0, |job| job.work_until().max(1));
        let at = Timespec { tv_sec: (moment / 1_000_000_000) as i64, tv_nsec: (moment % 1_000_000_000) as i64 };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
    }

    /// Sends an event to tenure. If tenure is gone, the next receive finds the connection closed.
    fn send(&self, event: GuardEvent) {
        let _ = wire::send(&self.socket, &event.to_string(), &[]);
    }
}
