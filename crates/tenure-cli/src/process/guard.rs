//! The guard: sees to it that nothing of a command outlives its term.
//!
//! One thread, no timers of its own but the one for the end of the term. It waits for
//!
//! - orders from tenure; if tenure is gone, everything is killed, and the guard ends
//! - the end of the term: everything is killed
//! - the end of children, by SIGCHLD
//!
//! and tells tenure what has become of the command. Only once *nothing* is left does it say so, or end,
//! and with that let go of the lifeline: the lock file or the socket of the session that holds the seat.
//! As long as the guard has it open, tenure's death does not free the seat. Stores that have no lifeline
//! hold a dead leader's seat until its lease is over, and the guard is done before that.

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
use super::wire::{Heard, News, Order};
use super::{GUARD_NAME, family, ignored_signals, now, wire};

/// Guards the command: `PARENT_PID STAMP CMD ARGS…`. Standard input is the line to tenure.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let stamp = args.next().unwrap_or_default();
    let code = match Guard::new(parent, stamp, args.collect()) {
        Ok(mut guard) => {
            guard.run();
            0
        }
        Err(error) => {
            crate::say::line(format!("tenure: the guard could not start: {error}"));
            crate::say::flush();
            2
        }
    };
    std::process::exit(code)
}

/// The place of the lifeline among the descriptors that come with a start, after the standard streams.
const LIFELINE: usize = 3;

struct Guard {
    command: Vec<OsString>,
    line: std::io::Stdin,
    /// Readable when a child has ended.
    ended: UnixStream,
    /// Readable when the term is over.
    timer: OwnedFd,
    understudy: Option<Understudy>,
    job: Option<Job>,
    /// More children may have ended than were reaped.
    unreaped: bool,
    /// Names the control groups of this guard, with its process id.
    stamp: OsString,
}

/// A shim that waits for its cue, and the control group it has joined.
struct Understudy {
    shim: Shim,
    cgroup: Option<Cgroup>,
}

impl Understudy {
    fn start(command: &[OsString], stamp: &OsStr) -> std::io::Result<Self> {
        let cgroup = Cgroup::make(stamp);
        let door = cgroup.as_ref().map(Cgroup::door).unwrap_or_default();
        Ok(Self { shim: Shim::start(&door, command, |_| {})?, cgroup })
    }
}

/// A command that runs, or what it has left behind.
struct Job {
    /// Its process; `None` once that has ended.
    main: Option<Pid>,
    group: Pid,
    kill_at: u64,
    /// Closed once the shim has become the command.
    shim: Option<OwnedFd>,
    failed: Option<i32>,
    /// Who was asked to end: the group, and which orphans.
    stopping: bool,
    group_asked: bool,
    asked: BTreeSet<i32>,
    cgroup: Option<Cgroup>,
    /// Held until nothing is left.
    _lifeline: Option<OwnedFd>,
}

impl Guard {
    fn new(parent: Option<Pid>, stamp: OsString, command: Vec<OsString>) -> std::io::Result<Self> {
        // First of all: what asks a whole service or terminal to end is tenure's to hear. Handlers
        // that do nothing, unlike ignored signals, are not passed on to the command. What was ignored
        // from the start (`nohup`) stays so, for the command too.
        let ignored = ignored_signals();
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2] {
            if !ignored.contains(signal) {
                signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
            }
        }
        // A guard that somebody has stopped wakes up when tenure is gone, and finds the line closed.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        if getppid() != parent {
            // It died before it was asked for. Nothing runs yet.
            std::process::exit(0);
        }
        let (ended, wake) = UnixStream::pair()?;
        ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, wake)?;
        setsid()?;
        family::adopt_orphans()?;
        let _ = rustix::thread::set_name(GUARD_NAME);
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let (line, understudy, job) = (std::io::stdin(), None, None);
        let guard = Self { command, line, ended, timer, understudy, job, unreaped: false, stamp };
        guard.tell(News::Ready);
        Ok(guard)
    }

    fn run(&mut self) {
        loop {
            self.wait();
            // Time first: nothing that comes in may hold up the end.
            self.keep_time();
            loop {
                match wire::next_order(&self.line) {
                    Heard::Nothing => break,
                    Heard::PushDetail(order, descriptors) => self.obey(order, descriptors),
                    Heard::Over => return self.leave(),
                }
            }
            self.look();
        }
    }

    /// Kills everything if time is up.
    fn keep_time(&mut self) {
        if self.job.as_ref().is_some_and(|job| now() >= job.kill_at) {
            self.tell(News::Cut);
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
        // Interrupted, it looks around, which does no harm.
        let _ = poll(&mut sources, self.unreaped.then_some(&at_once));
    }

    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        match order {
            Order::Prepare => {
                if self.job.is_none() && self.understudy.is_none() {
                    // Should it fail, then it is tried again when it is needed.
                    self.understudy = Understudy::start(&self.command, &self.stamp).ok();
                }
            }
            Order::Start { token, kill_at } => {
                if self.job.is_some() || now() >= kill_at {
                    self.tell(News::Cut);
                    return self.tell(News::Gone);
                }
                match self.start(token, kill_at, descriptors) {
                    Ok(job) => {
                        self.tell(News::Started { pid: job.group.as_raw_nonzero().get() });
                        self.job = Some(job);
                        self.set_timer(Some(kill_at));
                    }
                    Err(error) => {
                        self.tell(News::Failed { errno: error.raw_os_error().unwrap_or(0) });
                        self.tell(News::Gone);
                    }
                }
            }
            Order::KillAt(moment) => {
                if let Some(job) = &mut self.job {
                    job.kill_at = moment;
                    self.set_timer(Some(moment));
                }
                self.tell(News::Heard);
                self.keep_time();
            }
            Order::Stop => {
                if let Some(job) = &mut self.job {
                    job.ask();
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
        // Too many files are open here to receive them.
        if descriptors.len() < LIFELINE {
            return Err(Errno::MFILE.into());
        }
        let is_socket = |fd: &OwnedFd| fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket());
        let mut cue: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        // A lock file goes on to everything that the command starts. A socket does not: whatever wrote to it
        // would speak to the store in the leader's name.
        if descriptors.get(LIFELINE).is_some_and(is_socket) {
            cue.truncate(LIFELINE);
        }
        let new = || Understudy::start(&self.command, &self.stamp);
        let mut understudy = self.understudy.take().map_or_else(new, Ok)?;
        if understudy.shim.go(token, &cue).is_err() {
            // Somebody has killed it while it waited. The next one's control group has the same name.
            drop(understudy);
            understudy = Understudy::start(&self.command, &self.stamp)?;
            understudy.shim.go(token, &cue)?;
        }
        cue.clear();
        Ok(Job {
            main: Some(understudy.shim.pid),
            group: understudy.shim.pid,
            kill_at,
            shim: Some(understudy.shim.line),
            failed: None,
            stopping: false,
            group_asked: false,
            asked: BTreeSet::new(),
            cgroup: understudy.cgroup,
            _lifeline: descriptors.into_iter().nth(LIFELINE),
        })
    }

    /// Finds out what has become of the command and of what it has started.
    fn look(&mut self) {
        let _ = (&self.ended).read(&mut [0; 64]);
        let Some(job) = &mut self.job else {
            let understudy = self.understudy.as_ref().map(|understudy| understudy.shim.pid);
            let remaining = family::reap(family::BATCH, |pid, _| {
                if understudy == Some(pid) {
                    self.understudy = None;
                }
            });
            self.unreaped = remaining == Remaining::Unreaped;
            return;
        };
        // Before the reaping: a shim tells why it failed, and then ends.
        job.hear_shim();
        let (news, remaining) = job.reap(family::BATCH);
        self.unreaped = remaining == Remaining::Unreaped;
        // Not before all that has ended is reaped: what a storm of forks leaves behind makes the list too long.
        if job.stopping && remaining == Remaining::Alive {
            job.ask_orphans();
        }
        if let Some(news) = news {
            self.tell(news);
        }
        if remaining == Remaining::None {
            self.gone();
        }
    }

    /// Kills everything, and returns when nothing is left.
    fn kill(&mut self) {
        let Some(job) = &mut self.job else { return };
        let mut pause = 1_000_000;
        // Processes that fork and exit, more than can be reaped at once.
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
            let (news, remaining) = job.reap(family::FEW);
            if let Some(news) = news {
                let _ = wire::send(&self.line, &news.to_string(), &[]);
            }
            match remaining {
                Remaining::None => return self.gone(),
                Remaining::Alive => family::kill(family::children()),
                Remaining::Unreaped => {
                    storm = true;
                    continue;
                }
            }
            // The next one to end, or a little later: what is being killed may yet be dying.
            let timeout = Timespec { tv_sec: 0, tv_nsec: pause };
            let _ = poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&timeout));
            let _ = (&self.ended).read(&mut [0; 64]);
            pause = (pause * 2).min(50_000_000);
        }
    }

    /// Leaves nothing behind.
    fn leave(&mut self) {
        self.kill();
        if let Some(understudy) = self.understudy.take() {
            let _ = kill_process(understudy.shim.pid, Signal::KILL);
            while matches!(wait(WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
        }
    }

    fn gone(&mut self) {
        self.job = None;
        self.set_timer(None);
        self.tell(News::Gone);
    }

    /// Wakes at this moment, or never.
    fn set_timer(&self, moment: Option<u64>) {
        // Zero would mean never.
        let moment = moment.map_or(0, |moment| moment.max(1));
        let at = Timespec { tv_sec: (moment / 1_000_000_000) as i64, tv_nsec: (moment % 1_000_000_000) as i64 };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec);
    }

    /// Should tenure be gone, that will be heard on the line.
    fn tell(&self, news: News) {
        let _ = wire::send(&self.line, &news.to_string(), &[]);
    }
}

impl Job {
    fn hear_shim(&mut self) {
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

    /// Reaps children that have ended. Returns what there is to tell of the command, and what remains.
    fn reap(&mut self, limit: usize) -> (Option<News>, Remaining) {
        let main = self.main;
        let mut ended = None;
        let remaining = family::reap(limit, |pid, status| {
            self.asked.remove(&pid.as_raw_nonzero().get());
            if main == Some(pid) {
                ended = Some(status);
            }
        });
        let news = ended.map(|status| {
            // It may have told why it failed since we last heard of it; by now, that is all.
            self.hear_shim();
            self.main = None;
            self.failed.map_or(News::Exited(status.into()), |errno| News::Failed { errno })
        });
        (news, remaining)
    }

    /// Sends a signal to the command's process group.
    fn pass_on(&mut self, signal: i32) {
        // A shim that has not become the command yet would die of it.
        self.hear_shim();
        if self.main.is_some()
            && self.shim.is_none()
            && let Some(signal) = Signal::from_named_raw(signal)
        {
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Asks everything to end.
    fn ask(&mut self) {
        self.stopping = true;
        // Only while its first process is not reaped is the number of the group surely its own.
        if self.main.is_some() && !self.group_asked {
            self.group_asked = true;
            let _ = kill_process_group(self.group, Signal::TERM);
            // A stopped process would not hear it.
            let _ = kill_process_group(self.group, Signal::CONT);
        }
        self.ask_orphans();
    }

    /// Asks those to end, once each, that were left behind and have not heard it as part of the group.
    fn ask_orphans(&mut self) {
        for child in family::children() {
            let heard = self.group_asked && family::is_in_group(child, self.group);
            if !heard && self.asked.insert(child.as_raw_nonzero().get()) {
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
    fn a_number_that_was_asked_to_end_may_be_used_again() {
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
            group_asked: true,
            asked: BTreeSet::from([child.as_raw_nonzero().get()]),
            cgroup: None,
            _lifeline: None,
        };
        assert_eq!(job.reap(family::BATCH), (None, Remaining::None));
        assert!(job.asked.is_empty());
    }
}
