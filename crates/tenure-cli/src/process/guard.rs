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
//! seat of a dead leader until its lease expires, and the guard is done before that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, kill_process_group, set_parent_process_death_signal, setsid, wait,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};

use super::cgroup::Cgroup;
use super::family::Remaining;
use super::shim::Shim;
use super::wire::{GuardEvent, Order, Received};
use super::{GUARD_NAME, family, ignored_signals, now, wire};

/// Runs the guard: `PARENT_PID STAMP CMD ARGS…`. Standard input is the connection to tenure.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let stamp = args.next().unwrap_or_default();
    let code = match Guard::new(parent, stamp, args.collect()) {
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

/// The index of the lifeline among the descriptors of a start order, after the standard streams.
const LIFELINE: usize = 3;

struct Guard {
    command: Vec<OsString>,
    line: std::io::Stdin,
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
}

/// A shim that waits for its start message, and the control group that it has joined.
struct PreparedShim {
    shim: Shim,
    cgroup: Option<Cgroup>,
}

impl PreparedShim {
    fn start(command: &[OsString], stamp: &OsStr) -> std::io::Result<Self> {
        let cgroup = Cgroup::make(stamp);
        let procs_file = cgroup.as_ref().map(Cgroup::procs_file).unwrap_or_default();
        Ok(Self { shim: Shim::start(&procs_file, command, |_| {})?, cgroup })
    }
}

/// A running command, or the processes that it has left behind.
struct Job {
    /// The process of the command; `None` once it has ended.
    main: Option<Pid>,
    group: Pid,
    kill_at: u64,
    /// The connection to the shim; `None` once the shim has executed the command or failed.
    shim: Option<OwnedFd>,
    failed: Option<i32>,
    /// Whether SIGTERM was requested, and which processes have received it: the group, and these orphans.
    stopping: bool,
    group_signalled: bool,
    signalled: BTreeSet<i32>,
    cgroup: Option<Cgroup>,
    /// Held open until no process is left.
    _lifeline: Option<OwnedFd>,
}

impl Guard {
    fn new(parent: Option<Pid>, stamp: OsString, command: Vec<OsString>) -> std::io::Result<Self> {
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
        let (line, prepared, job) = (std::io::stdin(), None, None);
        let guard = Self { command, line, ended, timer, prepared, job, unreaped: false, stamp };
        guard.send(GuardEvent::Ready);
        Ok(guard)
    }

    fn run(&mut self) {
        loop {
            self.wait();
            // The deadline comes first: incoming orders must not delay it.
            self.enforce_deadline();
            loop {
                match wire::next_order(&self.line) {
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
        if self.job.as_ref().is_some_and(|job| now() >= job.kill_at) {
            self.send(GuardEvent::TimeUp);
            self.kill();
        }
    }

    /// Sleeps until something happens.
    fn wait(&self) {
        let mut sources = vec![
            PollFd::new(&self.line, PollFlags::IN),
            PollFd::new(&self.ended, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        if let Some(shim) = self.job.as_ref().and_then(|job| job.shim.as_ref()) {
            sources.push(PollFd::new(shim, PollFlags::IN));
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If a signal interrupts the poll, the loop checks everything, which does no harm.
        let _ = poll(&mut sources, self.unreaped.then_some(&at_once));
    }

    fn handle_order(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        match order {
            Order::Prepare => {
                if self.job.is_none() && self.prepared.is_none() {
                    // If this fails, the shim is started when it is needed.
                    self.prepared = PreparedShim::start(&self.command, &self.stamp).ok();
                }
            }
            Order::Start { token, kill_at } => {
                if self.job.is_some() || now() >= kill_at {
                    self.send(GuardEvent::TimeUp);
                    return self.send(GuardEvent::Gone);
                }
                match self.start(token, kill_at, descriptors) {
                    Ok(job) => {
                        self.send(GuardEvent::Started { pid: job.group.as_raw_nonzero().get() });
                        self.job = Some(job);
                        self.set_timer(Some(kill_at));
                    }
                    Err(error) => {
                        self.send(GuardEvent::Failed { errno: error.raw_os_error().unwrap_or(0) });
                        self.send(GuardEvent::Gone);
                    }
                }
            }
            Order::KillAt(moment) => {
                if let Some(job) = &mut self.job {
                    job.kill_at = moment;
                    self.set_timer(Some(moment));
                }
                self.send(GuardEvent::Acknowledged);
                self.enforce_deadline();
            }
            Order::Stop => {
                if let Some(job) = &mut self.job {
                    job.terminate();
                }
            }
            Order::PassOn(signal) => {
                if let Some(job) = &mut self.job {
                    job.pass_on(signal);
                }
            }
        }
    }

    fn start(&mut self, token: Option<u64>, kill_at: u64, descriptors: Vec<OwnedFd>) -> std::io::Result<Job> {
        // This process has too many open files to receive them.
        if descriptors.len() < LIFELINE {
            return Err(Errno::MFILE.into());
        }
        let is_socket = |fd: &OwnedFd| fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket());
        let mut attached: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        // The command and its descendants inherit a lock file. They do not inherit a socket: a process that writes to
        // it would send statements to the store in the leader's name.
        if descriptors.get(LIFELINE).is_some_and(is_socket) {
            attached.truncate(LIFELINE);
        }
        let new = || PreparedShim::start(&self.command, &self.stamp);
        let mut prepared = self.prepared.take().map_or_else(new, Ok)?;
        if prepared.shim.go(token, &attached).is_err() {
            // The shim was killed while it waited. Its control group is dropped first, because the next group has
            // the same name.
            drop(prepared);
            prepared = PreparedShim::start(&self.command, &self.stamp)?;
            prepared.shim.go(token, &attached)?;
        }
        attached.clear();
        Ok(Job {
            main: Some(prepared.shim.pid),
            group: prepared.shim.pid,
            kill_at,
            shim: Some(prepared.shim.line),
            failed: None,
            stopping: false,
            group_signalled: false,
            signalled: BTreeSet::new(),
            cgroup: prepared.cgroup,
            _lifeline: descriptors.into_iter().nth(LIFELINE),
        })
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
        // Before reaping: a shim that fails sends the reason and then exits.
        job.check_shim();
        let (event, remaining) = job.reap(family::BATCH);
        self.unreaped = remaining == Remaining::Unreaped;
        // Only after all ended children are reaped: a fork storm leaves so many that the list would be too long.
        if job.stopping && remaining == Remaining::Alive {
            job.terminate_orphans();
        }
        if let Some(event) = event {
            self.send(event);
        }
        if remaining == Remaining::None {
            self.gone();
        }
    }

    /// Kills everything and returns when no process is left.
    fn kill(&mut self) {
        let Some(job) = &mut self.job else { return };
        let mut pause = 1_000_000;
        // Processes fork and exit faster than one call reaps them.
        let mut storm = false;
        loop {
            if let Some(cgroup) = &job.cgroup {
                cgroup.kill();
            }
            if job.main.is_some() {
                let _ = kill_process_group(job.group, Signal::KILL);
            }
            if storm {
                family::kill(family::newest());
            }
            let (event, remaining) = job.reap(family::SMALL_BATCH);
            if let Some(event) = event {
                let _ = wire::send(&self.line, &event.to_string(), &[]);
            }
            match remaining {
                Remaining::None => return self.gone(),
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

    /// Kills everything, including a prepared shim.
    fn leave(&mut self) {
        self.kill();
        if let Some(prepared) = self.prepared.take() {
            let _ = kill_process(prepared.shim.pid, Signal::KILL);
            while matches!(wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
        }
    }

    fn gone(&mut self) {
        self.job = None;
        self.set_timer(None);
        self.send(GuardEvent::Gone);
    }

    /// Sets the timer to this moment, or disarms it.
    fn set_timer(&self, moment: Option<u64>) {
        // Zero disarms the timer.
        let moment = moment.map_or(0, |moment| moment.max(1));
        let at = Timespec { tv_sec: (moment / 1_000_000_000) as i64, tv_nsec: (moment % 1_000_000_000) as i64 };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
    }

    /// Sends an event to tenure. If tenure is gone, the next receive finds the connection closed.
    fn send(&self, event: GuardEvent) {
        let _ = wire::send(&self.line, &event.to_string(), &[]);
    }
}

impl Job {
    fn check_shim(&mut self) {
        let Some(shim) = &self.shim else { return };
        match wire::receive(shim, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => {}
            Ok(Some(packet)) => {
                self.failed = packet.text.parse().ok();
                self.shim = None;
            }
            Ok(None) | Err(_) => self.shim = None,
        }
    }

    /// Reaps children that have ended. Returns the event of the command, if it has ended, and the remaining children.
    fn reap(&mut self, limit: usize) -> (Option<GuardEvent>, Remaining) {
        let main = self.main;
        let mut ended = None;
        let remaining = family::reap(limit, |pid, status| {
            self.signalled.remove(&pid.as_raw_nonzero().get());
            if main == Some(pid) {
                ended = Some(status);
            }
        });
        let event = ended.map(|status| {
            // The shim may have sent an error since the last check. It has ended, so it sends no more.
            self.check_shim();
            self.main = None;
            self.failed.map_or(GuardEvent::Exited(status.into()), |errno| GuardEvent::Failed { errno })
        });
        (event, remaining)
    }

    /// Sends a signal to the command's process group.
    fn pass_on(&mut self, signal: i32) {
        // The signal would kill a shim that has not executed the command yet.
        self.check_shim();
        if self.main.is_some()
            && self.shim.is_none()
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Sends SIGTERM to all processes of the command.
    fn terminate(&mut self) {
        self.stopping = true;
        // Only while the command's process is not reaped, its group's number cannot belong to another group.
        if self.main.is_some() && !self.group_signalled {
            self.group_signalled = true;
            let _ = kill_process_group(self.group, Signal::TERM);
            // A stopped process does not handle the signal until it is resumed.
            let _ = kill_process_group(self.group, Signal::CONT);
        }
        self.terminate_orphans();
    }

    /// Sends SIGTERM, once each, to orphans that did not get it as part of the group.
    fn terminate_orphans(&mut self) {
        for child in family::children() {
            let in_signalled_group = self.group_signalled && family::is_in_group(child, self.group);
            if !in_signalled_group && self.signalled.insert(child.as_raw_nonzero().get()) {
                let _ = kill_process(child, Signal::TERM);
                let _ = kill_process(child, Signal::CONT);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_reaped_orphan_is_forgotten_so_its_number_can_be_signalled_again() {
        let _alone = family::tests::CHILDREN.lock().unwrap();
        let child = Pid::from_child(&Command::new("true").spawn().unwrap());
        waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let mut job = Job {
            main: None,
            group: child,
            kill_at: 0,
            shim: None,
            failed: None,
            stopping: true,
            group_signalled: true,
            signalled: BTreeSet::from([child.as_raw_nonzero().get()]),
            cgroup: None,
            _lifeline: None,
        };
        assert_eq!(job.reap(family::BATCH), (None, Remaining::None));
        assert!(job.signalled.is_empty());
    }
}
