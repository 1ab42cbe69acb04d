//! Everything that descends from this process: told to end, killed, and reaped until none is left.
//!
//! This process is a subreaper, so whoever loses its parent becomes a child of this one: in the end
//! everybody does, also those that have started a session or a group of their own. A child that was
//! not reaped keeps its number, so a signal to a child never hits somebody else.

use std::cell::LazyCell;
use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait, waitid,
};

/// Makes orphans among the descendants come to this process.
pub(crate) fn adopt_orphans() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// The children that remain after a call of [`reap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    None,
    /// The children that are alive. SIGCHLD announces the end of each.
    Alive,
    /// Perhaps some that have ended, too: call again soon.
    Unreaped,
}

/// How many children to take at once: processes that fork and exit may come faster than they are reaped, and
/// the caller has a clock and a line to look at in between.
pub(crate) const BATCH: usize = 256;

/// Reaps children that have ended, at most this many, and reports each.
pub(crate) fn reap(limit: usize, mut ended: impl FnMut(Pid, WaitStatus)) -> Remaining {
    for _ in 0..limit {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return Remaining::Alive,
            Err(Errno::CHILD) => return Remaining::None,
            Err(Errno::INTR) => {}
            Err(_) => return Remaining::Alive,
        }
    }
    Remaining::Unreaped
}

/// How many to take between two sweeps of a storm: reaping must not keep a sweep waiting.
pub(crate) const FEW: usize = 64;

/// Kills these children and the whole process groups that they are in. Reap and call again until none is left, as
/// the children of the killed become ours.
///
/// A process that has SIGKILL pending cannot fork, and a group is signalled as a whole, so nothing that is hit
/// escapes. A process escapes only by forking, its child by leaving the group, and both between the listing and
/// the signal. So the time between these two must be short: see [`newest`].
pub(crate) fn kill(children: impl IntoIterator<Item = Pid>) {
    let mine = LazyCell::new(own_group);
    for child in children {
        let _ = kill_process(child, Signal::KILL);
        // No other group has the number of a child that is not reaped.
        if kill_process_group(child, Signal::KILL).is_ok() {
            continue;
        }
        let its = match *mine {
            // The leader of this group is outside of this PID namespace. A child may be in the same group, and
            // rustix cannot return 0.
            Some(0) => group(&name(child)),
            // The system call is many times as fast.
            _ => getpgid(Some(child)).ok().map(|group| group.as_raw_nonzero().get()),
        };
        if its != *mine
            && let Some(group) = its.and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The living children of this process among the newest processes of the machine, the newest first. None where
/// `/proc/loadavg` does not tell the number of the newest process.
///
/// Processes that fork and exit leave thousands behind to be reaped. A list of all children takes longer than each
/// of the living needs to fork again, so whatever it names is dead. This one takes as long as [`BATCH`] looks, and
/// of such processes the living are always the newest. Stopping processes first (SIGSTOP) would gain nothing: whoever
/// is found can as well be killed, and neither forks any more. A look succeeds for children only, so no other process is
/// named, and a child keeps its number until it is reaped.
pub(crate) fn newest() -> impl Iterator<Item = Pid> {
    let told = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = told.split_ascii_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let is_alive = move |child: &Pid| matches!(waitid(WaitId::Pid(*child), look), Ok(None));
    (1..=last).rev().take(BATCH).filter_map(Pid::from_raw).filter(is_alive)
}

/// The children of this process, ended or not.
pub(crate) fn children() -> Vec<Pid> {
    children_by_thread().unwrap_or_else(children_by_parent)
}

/// As the kernel lists them for each thread, where it was built to.
fn children_by_thread() -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let listed = fs::read_to_string(thread.path().join("children")).ok()?;
        found.extend(listed.split_ascii_whitespace().filter_map(pid));
    }
    Some(found)
}

/// By asking every process for its parent.
fn children_by_parent() -> Vec<Pid> {
    let me = getpid().as_raw_nonzero().get();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let child = pid(entry.file_name().to_str()?)?;
            let parent = field(entry.file_name().to_str()?, PARENT)?;
            (parent == me).then_some(child)
        })
        .collect()
}

const PARENT: usize = 1;
const GROUP: usize = 2;
const SESSION: usize = 3;

/// Whether this child is in the session that this process is in.
pub(crate) fn is_in_my_session(child: Pid) -> bool {
    field(&name(child), SESSION) == field("self", SESSION)
}

/// Whether this child is in this process group.
pub(crate) fn is_in_group(child: Pid, leader: Pid) -> bool {
    group(&name(child)) == Some(leader.as_raw_nonzero().get())
}

/// The process group of this process.
pub(crate) fn own_group() -> Option<i32> {
    group("self")
}

/// The process group of a process; 0 if its leader is outside of this namespace, as when a container
/// joins the group of who started it. The system calls answer the same, but rustix cannot say so.
fn group(process: &str) -> Option<i32> {
    field(process, GROUP)
}

/// One of the numbers that the kernel tells of a process, after its name and its state.
fn field(process: &str, number: usize) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number)?.parse().ok()
}

fn name(process: Pid) -> String {
    process.as_raw_nonzero().to_string()
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;
    use std::sync::Mutex;

    use super::*;

    /// Held by each test that has children, as one may reap those of another.
    pub(crate) static CHILDREN: Mutex<()> = Mutex::new(());

    #[test]
    fn children_that_keep_ending_do_not_hold_up_the_caller() {
        let _alone = CHILDREN.lock().unwrap();
        let another = || {
            let pid = Pid::from_child(&Command::new("true").spawn().unwrap());
            // Ended, and not reaped.
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        };
        another();
        let mut reaped = 0;
        let remaining = reap(BATCH, |_, _| {
            reaped += 1;
            assert!(reaped < 10 * BATCH, "it would go on for ever");
            another();
        });
        assert_eq!(remaining, Remaining::Unreaped);
        assert_eq!(reap(BATCH, |_, _| ()), Remaining::None);
    }

    #[test]
    fn the_newest_are_children_and_alive() {
        let _alone = CHILDREN.lock().unwrap();
        let ended = Pid::from_child(&Command::new("true").spawn().unwrap());
        waitid(WaitId::Pid(ended), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        // Others may start many processes at the same time, but not for ever.
        let found = (0..1000).any(|_| {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let newest: Vec<Pid> = newest().collect();
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(newest.is_empty() || newest == [Pid::from_child(&child)]);
            !newest.is_empty()
        });
        assert_eq!(reap(BATCH, |_, _| ()), Remaining::None);
        assert!(found);
    }

    #[test]
    fn both_ways_of_finding_children_agree() {
        let _alone = CHILDREN.lock().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let by_parent = children_by_parent().contains(&pid);
        let by_thread = children_by_thread().is_none_or(|children| children.contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(by_parent && by_thread);
    }
}
