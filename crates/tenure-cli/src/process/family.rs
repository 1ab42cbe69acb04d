//! The descendants of this process: how to find, kill and reap them until none is left.
//!
//! This process is a subreaper: a descendant that loses its parent becomes a child of this process, also if it has
//! started a session or a process group of its own. So once their ancestors have ended, all descendants are children.
//! A child keeps its process id until it is reaped, so a signal to a child never reaches another process.

use std::cell::LazyCell;
use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait, waitid,
};

use super::SignalSet;

/// Makes this process the parent of all orphans among its descendants.
pub(crate) fn adopt_orphans() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// The children that remain after a call of [`reap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    None,
    /// Only children that are alive. SIGCHLD announces the end of each.
    Alive,
    /// Possibly children that have ended: call `reap` again soon.
    Unreaped,
}

/// The number of children to reap in one call. Processes that fork and exit can end faster than they are reaped, and
/// the caller must check its clock and its connection in between.
pub(crate) const BATCH: usize = 256;

/// Reaps at most `limit` children that have ended, and calls `ended` for each.
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

/// The number of children to reap between two kills of a fork storm: reaping must not delay the next kill.
pub(crate) const SMALL_BATCH: usize = 64;

/// Kills these children and the process groups that they are in. The children of a killed process become children of
/// this process, so reap and call this again until none is left.
///
/// A process with a pending SIGKILL cannot fork, and the kernel signals a group as a whole. So a process that is
/// signalled does not escape. A process escapes only if, between the listing and the signal, it forks and its child
/// leaves the group. So this time must be short: see [`newest`].
pub(crate) fn kill(children: impl IntoIterator<Item = Pid>) {
    let mine = LazyCell::new(own_group);
    for child in children {
        let _ = kill_process(child, Signal::KILL);
        // While a child is not reaped, no other group can get its number.
        if kill_process_group(child, Signal::KILL).is_ok() {
            continue;
        }
        let its = match *mine {
            // The leader of this process's group is outside of this PID namespace. The child can be in the same
            // group, and rustix cannot return 0.
            Some(0) => group(&name(child)),
            // The system call is many times faster than /proc.
            _ => getpgid(Some(child)).ok().map(|group| group.as_raw_nonzero().get()),
        };
        if its != *mine
            && let Some(group) = its.and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Returns the living children of this process among the newest processes of the machine, the newest first. Empty if
/// `/proc/loadavg` does not contain the number of the newest process.
///
/// Processes that fork and exit in a storm leave thousands of dead children to reap. Listing all children takes longer
/// than a living process needs to fork again, so every process on the finished list is dead. This function makes at
/// most twice [`BATCH`] checks, and in such a storm the living processes are always the newest. Stopping the processes first
/// (SIGSTOP) has no advantage: a process that can be stopped can be killed, and neither kind forks again. The check
/// succeeds only for children, and a child keeps its number until it is reaped, so no other process is returned.
pub(crate) fn newest() -> impl Iterator<Item = Pid> {
    let loadavg = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = loadavg.split_ascii_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0);
    let most = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let most = most.trim().parse().unwrap_or(0);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let is_alive = move |child: &Pid| matches!(waitid(WaitId::Pid(*child), look), Ok(None));
    newest_numbers(last, most).filter_map(Pid::from_raw).filter(is_alive)
}

/// Returns the numbers of the newest processes, the newest first, if `last` is the newest and `most` is where numbers start
/// over. The kernel starts over at 300, so soon after that the numbers below `most` are new as well.
fn newest_numbers(last: i32, most: i32) -> impl Iterator<Item = i32> {
    let may_have_started_over = (1..300 + BATCH as i32).contains(&last);
    let before = if may_have_started_over { BATCH } else { 0 };
    (1..=last).rev().take(BATCH).chain((last + 1..=most).rev().take(before))
}

/// The memory that the kernel frees in about 20 ms when its processes are killed, in KiB. For 3 GiB it takes 250 ms, in
/// which their ports and locks are still taken.
const QUICKLY_FREED: u64 = 256 * 1024;

/// Returns whether this signal would end all descendants of this process at once: none of them handles or blocks it, and
/// together they do not have more memory than [`QUICKLY_FREED`]. `false` if there are more than [`BATCH`] of them, or the
/// kernel has no lists of children.
pub(crate) fn all_die_of(signal: i32) -> bool {
    let Some(mut processes) = children_by_thread("self") else { return false };
    let (mut checked, mut memory) = (0, 0);
    while let Some(process) = processes.get(checked).map(|process| name(*process)) {
        // A process that has ended meanwhile has no such file.
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let is_handled = ["SigCgt:", "SigBlk:"].iter().any(|set| SignalSet::parse(&status, set).contains(signal));
        let kib = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
        memory += status.lines().find(|line| line.starts_with("RssAnon:")).and_then(kib).unwrap_or(0);
        checked += 1;
        if is_handled || checked > BATCH || memory > QUICKLY_FREED {
            return false;
        }
        processes.extend(children_by_thread(&process).unwrap_or_default());
    }
    true
}

/// Returns the children of this process, including those that have ended and are not reaped.
pub(crate) fn children() -> Vec<Pid> {
    children_by_thread("self").unwrap_or_else(children_by_parent)
}

/// Reads the kernel's list of children for each thread of a process; `None` if the kernel was built without it, or the
/// process has ended.
fn children_by_thread(process: &str) -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let listed = fs::read_to_string(thread.path().join("children")).ok()?;
        found.extend(listed.split_ascii_whitespace().filter_map(pid));
    }
    Some(found)
}

/// Checks the parent of every process.
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

/// Returns whether no shell controls the group of this process: no ancestor is in its session and in another group. The
/// kernel does not stop such a group at Ctrl-Z, because nothing would resume it.
pub(crate) fn is_orphaned() -> bool {
    let (session, group) = (field("self", SESSION), field("self", GROUP));
    let mut process = field("self", PARENT);
    while let Some(ancestor) = process.filter(|pid| *pid > 0).map(|pid| pid.to_string()) {
        if field(&ancestor, SESSION) != session {
            return true;
        }
        if field(&ancestor, GROUP) != group {
            return false;
        }
        process = field(&ancestor, PARENT);
    }
    true
}

/// Returns whether this child is in the session of this process.
pub(crate) fn is_in_my_session(child: Pid) -> bool {
    field(&name(child), SESSION) == field("self", SESSION)
}

/// Returns whether this child is in the process group of this leader.
pub(crate) fn is_in_group(child: Pid, leader: Pid) -> bool {
    group(&name(child)) == Some(leader.as_raw_nonzero().get())
}

/// Returns whether this process is neither stopped nor dead.
pub(crate) fn runs(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", name(process))).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['T', 't', 'Z', 'X']))
}

/// Returns the process group of this process.
pub(crate) fn own_group() -> Option<i32> {
    group("self")
}

/// Returns the process group of a process. It is 0 if its leader is outside of this PID namespace, as in a container
/// that stays in the group of the process that started it. The system calls also return 0, but rustix cannot.
fn group(process: &str) -> Option<i32> {
    field(process, GROUP)
}

/// Returns one of the numbers in `/proc/PROCESS/stat`, counted from the state, which follows the name.
fn field(process: &str, number: usize) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, can contain any character.
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
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::sync::Mutex;

    use super::*;

    /// Held by each test that has children: a test can reap the children of another.
    pub(crate) static CHILDREN: Mutex<()> = Mutex::new(());

    #[test]
    fn reaping_stops_at_its_limit_while_children_keep_ending() {
        let _alone = CHILDREN.lock().unwrap();
        let another = || {
            let pid = Pid::from_child(&Command::new("true").spawn().unwrap());
            // Waits until it has ended, without reaping it.
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        };
        another();
        let mut reaped = 0;
        let remaining = reap(BATCH, |_, _| {
            reaped += 1;
            assert!(reaped < 10 * BATCH, "reap does not stop at its limit");
            another();
        });
        assert_eq!(remaining, Remaining::Unreaped);
        assert_eq!(reap(BATCH, |_, _| ()), Remaining::None);
    }

    /// Returns whether SIGTERM would end all processes of this script at once, after it has printed a line.
    fn all_die_beside(script: &str) -> bool {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        // By then it has set up its signals.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let all_die = all_die_of(Signal::TERM.as_raw());
        kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        all_die
    }

    #[test]
    fn a_descendant_that_handles_or_blocks_a_signal_is_found() {
        let _alone = CHILDREN.lock().unwrap();
        let sleep = "echo ready; exec sleep 60";
        assert!(all_die_beside(sleep));
        assert!(!all_die_beside("trap : TERM; echo ready; sleep 60"));
        assert!(!all_die_beside("sh -c 'trap : TERM; echo ready; sleep 60' & wait"));
        assert!(!all_die_beside(&format!("exec env --block-signal=TERM sh -c '{sleep}'")));
        assert!(all_die_beside(&format!("exec env --ignore-signal=TERM sh -c '{sleep}'")));
    }

    #[test]
    fn a_descendant_with_much_memory_does_not_die_at_once() {
        // `tail` keeps the last line, which has no end.
        let tail_of = |bytes: u64| {
            let line = format!("head -c {bytes} /dev/zero; echo ready >&3; exec sleep 60");
            all_die_beside(&format!("exec 3>&1; {{ {line}; }} | tail > /dev/null"))
        };
        let _alone = CHILDREN.lock().unwrap();
        assert!(tail_of(1024 * QUICKLY_FREED / 2));
        assert!(!tail_of(1024 * QUICKLY_FREED * 3 / 2));
    }

    #[test]
    fn the_newest_are_children_and_alive() {
        let _alone = CHILDREN.lock().unwrap();
        let ended = Pid::from_child(&Command::new("true").spawn().unwrap());
        waitid(WaitId::Pid(ended), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        // Other programs can start many processes at the same time, but not in every attempt.
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
    fn the_newest_numbers_are_also_those_before_the_kernel_started_over() {
        let numbers = |last| newest_numbers(last, 4_194_304).collect::<Vec<_>>();
        let many = numbers(50_000);
        assert_eq!((many.len(), many[0], many[BATCH - 1]), (BATCH, 50_000, 50_001 - BATCH as i32));
        let few = numbers(302);
        assert!(few.starts_with(&[302, 301, 300]) && few.len() == 2 * BATCH);
        assert_eq!(few[BATCH..BATCH + 2], [4_194_304, 4_194_303]);
        assert_eq!(newest_numbers(3, 5).collect::<Vec<_>>(), [3, 2, 1, 5, 4]);
        assert!(numbers(0).is_empty(), "the number of the newest process is unknown");
    }

    #[test]
    fn both_ways_of_finding_children_agree() {
        let _alone = CHILDREN.lock().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let by_parent = children_by_parent().contains(&pid);
        let by_thread = children_by_thread("self").is_none_or(|children| children.contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(by_parent && by_thread);
    }
}
