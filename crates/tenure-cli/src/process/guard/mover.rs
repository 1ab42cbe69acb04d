//! Moves the processes of a guard into its control group, on a thread of its own.
//!
//! The kernel needs about 15 ms to move a process, and the next few are fast (`cgroup_threadgroup_rwsem`, an RCU grace
//! period). The caller cannot be interrupted meanwhile. A shim that joined the group before each command would delay
//! commands that start at once, and a guard that waited for the kernel could miss a deadline. So another thread moves
//! the processes while they run, and it does so only if they live for [`DELAY`]: shorter ones end before the kernel is
//! done. A shim that waits for its term is in the group long before it executes its command.
//!
//! # Why all processes are in the group when the thread is done
//!
//! A child is born into the group of its parent. A process is moved before its children are listed, so children that are
//! born outside are on the list, and later ones are born inside. A process whose parent has ended becomes a child of the
//! guard, which lists its own children until it finds no new ones. There are two exceptions: a command can be a
//! subreaper itself, or start siblings instead of children (`CLONE_PARENT`). So the thread starts over until it finds no
//! process outside, but for [`PATIENCE`] at most, because a fork storm can be faster. A process that has joined another
//! group, such as that of a `tenure run` below the command, stays there, as it could leave this group.
//!
//! A guard that kills does not rely on this: it kills the group, and also every process that it finds (`family.rs`).

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;

use super::super::cgroup::{self, Cgroup};
use super::super::will::Mortal;
use super::super::{family, now};

/// How long a process lives outside of the group before it is moved, in nanoseconds.
const DELAY: u64 = 20_000_000;

/// How long the thread tries to find the processes of a fork storm, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;

/// The control group of a guard, and the thread that moves processes into it.
pub(super) struct Mover {
    group: Arc<Group>,
    /// Names the group, together with the process id of the guard.
    stamp: OsString,
    /// When to move the processes that were started outside of the group.
    due: Option<u64>,
    thread: Option<JoinHandle<()>>,
    /// The thread writes to it when it is done, without blocking.
    wake: UnixStream,
}

#[derive(Default)]
struct Group {
    /// Not set until the first thread has created the group; `None` if the system does not allow one.
    cgroup: OnceLock<Option<Cgroup>>,
    /// The kernel has moved the first process, so using the group takes no time any more.
    is_in_use: AtomicBool,
    /// The thread has nothing more to do.
    is_done: AtomicBool,
}

impl Group {
    fn in_use(&self) -> Option<&Cgroup> {
        self.cgroup.get()?.as_ref().filter(|_| self.is_in_use.load(Ordering::Acquire))
    }
}

impl Mover {
    pub(super) fn new(stamp: OsString, wake: UnixStream) -> Self {
        Self { group: Arc::default(), stamp, due: None, thread: None, wake }
    }

    /// Returns the group, once it has processes.
    pub(super) fn group(&self) -> Option<&Cgroup> {
        self.group.in_use()
    }

    /// Returns the file by which a new shim joins the group, before it executes its command. While there is no group, it
    /// is empty, and the shim is moved later.
    pub(super) fn procs_file(&mut self) -> PathBuf {
        if let Some(cgroup) = self.group() {
            return cgroup.procs_file();
        }
        let is_possible = self.group.cgroup.get().is_none_or(Option::is_some);
        self.due = is_possible.then(|| now() + DELAY);
        PathBuf::new()
    }

    /// Notes that a shim executes its command now, which may end soon.
    pub(super) fn executes(&mut self) {
        self.due = self.due.map(|_| now() + DELAY);
    }

    /// Returns how long to wait until [`Mover::move_if_due`] has something to do.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let due = self.due.filter(|_| self.thread.is_none())?;
        Some(Duration::from_nanos(due.saturating_sub(now())))
    }

    /// Moves processes that have lived long enough.
    pub(super) fn move_if_due(&mut self) {
        if self.group.is_done.swap(false, Ordering::AcqRel) {
            self.join();
        }
        if self.due.is_some_and(|due| now() >= due) {
            self.move_now();
        }
    }

    /// Moves all processes at once, for a guard that has to kill processes that it cannot kill one by one.
    pub(super) fn move_now(&mut self) {
        if self.thread.is_some() || self.due.take().is_none() {
            return;
        }
        let (group, stamp) = (self.group.clone(), self.stamp.clone());
        let Ok(mut wake) = self.wake.try_clone() else { return };
        let work = move || {
            if let Some(cgroup) = group.cgroup.get_or_init(|| Cgroup::make(&stamp)) {
                move_all(cgroup, &group.is_in_use);
            }
            group.is_done.store(true, Ordering::Release);
            // If this would block, the guard has other reasons to wake up.
            let _ = wake.write(&[0]);
        };
        // Without a thread there is no group, and the guard finds the processes without one.
        self.thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(work).ok();
    }

    /// Waits until the thread has ended.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        // Then nothing else holds the group, so it is removed before the guard exits.
        self.join();
    }
}

/// Moves all descendants of this process into the group.
fn move_all(cgroup: &Cgroup, is_in_use: &AtomicBool) {
    let began = now();
    let mut is_complete = false;
    while !is_complete && now() - began < PATIENCE {
        is_complete = true;
        family::visit_descendants(|process, parent| {
            if cgroup::is_in_own_group(process) && family::is_alive_child_of(process, parent) {
                is_complete = false;
                move_one(cgroup, process, parent);
                is_in_use.store(true, Ordering::Release);
            }
            now() - began < PATIENCE
        });
    }
    is_in_use.store(true, Ordering::Release);
}

/// Moves a process into the group.
///
/// The kernel is given a number, which belongs to another process if this one ends meanwhile and is reaped, and all
/// other numbers are used up: if the guard is stopped at the wrong moment, there is time for that. A process that is
/// alive afterwards had the number all the time. If it is dead and the group has a process of that number, the group
/// returns that process.
fn move_one(cgroup: &Cgroup, process: Pid, parent: Pid) {
    let Some(mortal) = Mortal::watch(process) else { return };
    if !family::is_alive_child_of(process, parent) {
        return;
    }
    cgroup.take_in(process);
    if !mortal.is_alive() && cgroup.contains(process) && !family::is_alive_child_of(process, parent) {
        cgroup.give_back(process);
    }
}
