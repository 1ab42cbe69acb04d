//! What becomes the command.
//!
//! A shim is started ahead of time and waits for its cue, so that a command starts as soon as its term
//! does. Meanwhile it does what only the process itself can do: it asks the kernel to be killed when
//! its parent is gone, whatever that died of, and joins the control group. Both stay with the command.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::{MYSELF, SHIM, wire};

/// A shim that waits for its cue.
pub(crate) struct Shim {
    pub(crate) pid: Pid,
    /// Closed once the shim has become the command; before that, it tells why it could not.
    pub(crate) line: OwnedFd,
}

impl Shim {
    /// Starts a shim for the command, in a process group of its own. It dies with this thread.
    pub(crate) fn start<A: AsRef<OsStr>>(
        door: &Path,
        command: impl IntoIterator<Item = A>,
        adapt: impl FnOnce(&mut Command),
    ) -> std::io::Result<Self> {
        let (line, there) = wire::pair()?;
        let mut shim = Command::new(MYSELF);
        shim.arg0("tenure").arg(SHIM).arg(getpid().as_raw_nonzero().to_string()).arg(door).args(command);
        shim.stdin(Stdio::from(there)).process_group(0);
        adapt(&mut shim);
        Ok(Self { pid: Pid::from_child(&shim.spawn()?), line })
    }

    /// Gives it its cue: the number of its term, its standard streams, and the lifeline, if there is one.
    pub(crate) fn go(&self, token: Option<u64>, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        wire::send(&self.line, &token.map_or("go".to_owned(), |token| format!("go {token}")), descriptors)
    }
}

/// Becomes the command: `PARENT_PID CGROUP_DOOR CMD ARGS…`. Standard input is the line to the parent.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let door = args.next().unwrap_or_default();
    if let (Some(program), Ok(line)) = (args.next(), wait_ready(parent, &door)) {
        let error = become_command(&line, Command::new(program).args(args));
        let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        let _ = wire::send(line, &errno.to_string(), &[]);
    }
    std::process::exit(126);
}

/// Returns the line to the parent, which closes when the command takes over.
fn wait_ready(parent: Option<Pid>, door: &OsStr) -> rustix::io::Result<OwnedFd> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        // It died before it was asked for.
        std::process::exit(126);
    }
    if !door.is_empty() {
        // Where it does not work, the guard does without.
        let _ = std::fs::write(door, "0");
    }
    fcntl_dupfd_cloexec(std::io::stdin(), 3)
}

/// Waits for the cue. Returns only if it fails.
fn become_command(line: &OwnedFd, command: &mut Command) -> std::io::Error {
    let lifeline = match cue(line) {
        Ok((token, lifeline)) => {
            if let Some(token) = token {
                command.env("TENURE_TERM", token);
            }
            lifeline
        }
        Err(error) => return error.into(),
    };
    let error = command.exec();
    drop(lifeline);
    error
}

fn cue(line: &OwnedFd) -> rustix::io::Result<(Option<String>, Option<OwnedFd>)> {
    let Some(packet) = wire::receive(line, RecvFlags::empty())? else {
        // Nobody needs it any more.
        std::process::exit(126);
    };
    let mut descriptors = packet.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(Errno::BADF);
    rustix::stdio::dup2_stdin(next()?)?;
    rustix::stdio::dup2_stdout(next()?)?;
    rustix::stdio::dup2_stderr(next()?)?;
    // Out of the way of scripts, which like to use small numbers for their own.
    let lifeline = descriptors.next().map(|lifeline| fcntl_dupfd_cloexec(&lifeline, 100).unwrap_or(lifeline));
    if let Some(lifeline) = &lifeline {
        // Everything that descends from here keeps it: as long as one of them lives, the seat is not
        // free before its lease is over.
        fcntl_setfd(lifeline.as_fd(), FdFlags::empty())?;
    }
    Ok((packet.text.strip_prefix("go ").map(str::to_owned), lifeline))
}
