//! The processes of one term: a hook or the command, and everything that they have left behind.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::super::cgroup::Cgroup;
use super::super::family::{self, Remaining};
use super::super::plan::{Plan, Stage};
use super::super::shim::{Place, Shim};
use super::super::wire::{self, Exit, GuardEvent, Hook};

/// The index of the lifeline among the descriptors of a start order, after the standard streams.
pub(super) const LIFELINE: usize = 3;

/// A running hook or command, or the processes that it has left behind.
pub(super) struct Job {
    pub(super) stage: Stage,
    token: Option<u64>,
    /// The process of the stage; `None` once it has ended, and in a stage without one.
    pub(super) main: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) kill_at: u64,
    /// How long before `kill_at` the term ends for its work, in nanoseconds.
    grace: u64,
    has_on_stop: bool,
    has_terminal: bool,
    /// The connection to the shim; `None` once the shim has executed its program or failed.
    pub(super) shim: Option<OwnedFd>,
    failed: Option<i32>,
    /// Whether SIGTERM was requested, and which processes have received it: the group, and these orphans.
    pub(super) stopping: bool,
    group_signalled: bool,
    signalled: BTreeSet<i32>,
    /// The standard streams, and the lifeline, if there is one. Held open until no process is left, and dropped before
    /// the control group, which the kernel needs longer to remove.
    descriptors: Vec<OwnedFd>,
    pub(super) cgroup: Option<Cgroup>,
}

impl Job {
    pub(super) fn new(
        plan: &Plan,
        token: Option<u64>,
        kill_at: u64,
        grace: u64,
        cgroup: Option<Cgroup>,
        descriptors: Vec<OwnedFd>,
    ) -> rustix::io::Result<Self> {
        // This process has too many open files to receive them.
        if descriptors.len() < LIFELINE {
            return Err(Errno::MFILE);
        }
        Ok(Self {
            stage: Stage::Idle,
            token,
            main: None,
            group: None,
            kill_at,
            grace,
            has_on_stop: plan.on_stop.is_some(),
            has_terminal: plan.tty,
            shim: None,
            failed: None,
            stopping: false,
            group_signalled: false,
            signalled: BTreeSet::new(),
            cgroup,
            descriptors,
        })
    }

    /// Enters a stage with the process of this shim.
    pub(super) fn enter(&mut self, stage: Stage, shim: Shim) -> std::io::Result<()> {
        let dev_null;
        let mut attached: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        if stage != Stage::Command {
            dev_null = File::open("/dev/null")?;
            attached[0] = dev_null.as_fd();
        }
        let is_socket = |fd: &OwnedFd| fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket());
        // The command and its descendants inherit a lock file. They do not inherit a socket: a process that writes to
        // it would send statements to the store in the leader's name.
        if self.descriptors.get(LIFELINE).is_some_and(is_socket) {
            attached.truncate(LIFELINE);
        }
        shim.go(self.token, &attached)?;
        (self.main, self.group, self.shim) = (Some(shim.pid), Some(shim.pid), Some(shim.socket));
        (self.stage, self.failed, self.group_signalled) = (stage, None, false);
        Ok(())
    }

    /// Starts a shim for a stage, in the control group of this job.
    pub(super) fn shim(&self, words: &[OsString], place: Place) -> std::io::Result<Shim> {
        let procs_file = self.cgroup.as_ref().map_or_else(PathBuf::new, Cgroup::procs_file);
        Shim::start(&procs_file, words, place, |_| {})
    }

    /// Returns whether the hook for the end of the term has yet to run.
    pub(super) fn owes_on_stop(&self) -> bool {
        self.has_on_stop && self.stage != Stage::OnStop
    }

    /// Returns when everything but the hook for the end is killed. That hook gets half of the time that work has to
    /// wrap up.
    pub(super) fn work_until(&self) -> u64 {
        if self.owes_on_stop() { self.kill_at.saturating_sub(self.grace / 2) } else { self.kill_at }
    }

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

    /// Reaps children that have ended. Returns the event of the stage's process, if it has ended, and the remaining
    /// children.
    pub(super) fn reap(&mut self, limit: usize) -> (Option<GuardEvent>, Remaining) {
        // Before reaping: a shim that fails sends the reason and then exits.
        self.check_shim();
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
            self.event(status.into())
        });
        (event, remaining)
    }

    fn event(&self, exit: Exit) -> GuardEvent {
        match (self.failed, self.stage) {
            (Some(errno), _) => GuardEvent::Failed { errno },
            (None, Stage::OnStart) => GuardEvent::HookEnded(Hook::OnStart, exit),
            (None, Stage::OnStop) => GuardEvent::HookEnded(Hook::OnStop, exit),
            (None, Stage::Command | Stage::Idle) => GuardEvent::Exited(exit),
        }
    }

    /// Sends a signal to the command's process group.
    pub(super) fn pass_on(&mut self, signal: i32) {
        // The signal would kill a shim that has not executed the command yet.
        self.check_shim();
        let harms_shim = ![Signal::STOP, Signal::CONT].map(Signal::as_raw).contains(&signal);
        if self.main.is_some()
            && !(harms_shim && self.shim.is_some())
            && self.stage == Stage::Command
            && let (Some(group), Some(signal)) = (self.group, Signal::from_named_raw(signal))
        {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Returns whether the command can work until its deadline, and needs no time to wrap up: SIGTERM would end all of
    /// its processes at once, as SIGKILL does.
    pub(super) fn can_work_on(&mut self) -> bool {
        self.check_shim();
        // A shell on a terminal handles SIGHUP.
        let is_running = self.stage == Stage::Command && self.shim.is_none() && !self.stopping;
        is_running && !self.has_terminal && family::all_die_of(Signal::TERM.as_raw())
    }

    /// Sends SIGTERM to all processes, except those of the hook for the end.
    pub(super) fn terminate(&mut self) {
        if self.stage == Stage::OnStop {
            return;
        }
        self.stopping = true;
        // Only while the stage's process is not reaped, its group's number cannot belong to another group.
        if let (Some(main), Some(group)) = (self.main, self.group)
            && !self.group_signalled
        {
            self.group_signalled = true;
            // A stopped process does not handle a signal until it is resumed. An interactive shell ignores SIGTERM, and
            // ends when its terminal is closed (SIGHUP).
            let hang_up = self.has_terminal.then_some(Signal::HUP);
            for signal in [Signal::TERM, Signal::CONT].into_iter().chain(hang_up) {
                // A shim that has not started its session yet is in another group.
                if kill_process_group(group, signal).is_err() {
                    let _ = kill_process(main, signal);
                }
            }
        }
        self.terminate_orphans();
    }

    /// Sends SIGTERM, once each, to orphans that did not get it as part of the group.
    pub(super) fn terminate_orphans(&mut self) {
        for child in family::children() {
            let in_signalled_group =
                self.group_signalled && self.group.is_some_and(|group| family::is_in_group(child, group));
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

    fn job(plan: &Plan, kill_at: u64, grace: u64) -> Job {
        let stream = || OwnedFd::from(File::open("/dev/null").unwrap());
        Job::new(plan, None, kill_at, grace, None, vec![stream(), stream(), stream()]).unwrap()
    }

    #[test]
    fn a_reaped_orphan_is_forgotten_so_its_number_can_be_signalled_again() {
        let _alone = family::tests::CHILDREN.lock().unwrap();
        let child = Pid::from_child(&Command::new("true").spawn().unwrap());
        waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let mut job = job(&Plan::default(), 0, 0);
        (job.group, job.stopping, job.group_signalled) = (Some(child), true, true);
        job.signalled.insert(child.as_raw_nonzero().get());
        assert_eq!(job.reap(family::BATCH), (None, Remaining::None));
        assert!(job.signalled.is_empty());
    }

    #[test]
    fn the_hook_for_the_end_gets_half_of_the_time_to_wrap_up() {
        let plan = Plan { on_stop: Some("true".into()), ..Plan::default() };
        let mut job = job(&plan, 1000, 400);
        assert_eq!(job.work_until(), 800);
        job.stage = Stage::OnStop;
        assert_eq!(job.work_until(), 1000);
        assert_eq!(self::job(&Plan::default(), 1000, 400).work_until(), 1000);
    }
}
