//! The shim: a process that is started ahead of time and later executes the command.
//!
//! A shim waits for its start message, so that the command starts as soon as its term does. Meanwhile it does two
//! things that only the process itself can do. It asks the kernel to kill it when its parent dies, for whatever
//! reason, and it joins the control group. Both settings stay in force when the shim executes the command.

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, getpid, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid};

use super::{SHIM, THIS_PROGRAM, wire};

/// A shim that waits for its start message.
pub(crate) struct Shim {
    pub(crate) pid: Pid,
    /// The connection to the shim. It closes when the shim executes the command. If that fails, the shim sends the
    /// error number.
    pub(crate) socket: OwnedFd,
}

/// Where a shim executes its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a process group of its own.
    OwnGroup,
    /// In a session of its own, whose terminal is the command's standard input.
    OwnTerminal,
}

impl Shim {
    /// Starts a shim for the command. The shim dies with the calling thread.
    pub(crate) fn start<A: AsRef<OsStr>>(
        procs_file: &Path,
        command: impl IntoIterator<Item = A>,
        place: Place,
        adapt: impl FnOnce(&mut Command),
    ) -> std::io::Result<Self> {
        let (socket, there) = wire::pair()?;
        let mut shim = Command::new(THIS_PROGRAM);
        shim.arg0("tenure").arg(SHIM).arg(getpid().as_raw_nonzero().to_string());
        shim.arg(if place == Place::OwnTerminal { TERMINAL } else { "" }).arg(procs_file).args(command);
        shim.stdin(Stdio::from(there));
        if place == Place::OwnGroup {
            shim.process_group(0);
        }
        adapt(&mut shim);
        Ok(Self { pid: Pid::from_child(&shim.spawn()?), socket })
    }

    /// Sends the start message: the token of the term, the standard streams, and the lifeline, if there is one.
    pub(crate) fn go(&self, token: Option<u64>, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        wire::send(&self.socket, &token.map_or("go".to_owned(), |token| format!("go {token}")), descriptors)
    }
}

/// The argument of a shim that starts a session.
const TERMINAL: &str = "terminal";

/// Runs the shim: `PARENT_PID TERMINAL CGROUP_PROCS CMD ARGS…`. Standard input is the connection to the parent.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let has_terminal = args.next().is_some_and(|word| word == TERMINAL);
    let procs_file = args.next().unwrap_or_default();
    if let (Some(program), Ok(socket)) = (args.next(), wait_ready(parent, has_terminal, &procs_file)) {
        let error = become_command(&socket, has_terminal, Command::new(program).args(args));
        let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        let _ = wire::send(socket, &errno.to_string(), &[]);
    }
    std::process::exit(126);
}

/// Prepares the process and returns the connection to the parent, which closes when the command is executed.
fn wait_ready(parent: Option<Pid>, has_terminal: bool, procs_file: &OsStr) -> rustix::io::Result<OwnedFd> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        // The parent died before the kernel was asked to watch it.
        std::process::exit(126);
    }
    if has_terminal {
        setsid()?;
    }
    if !procs_file.is_empty() {
        // If this fails, the guard finds the processes without a control group.
        let _ = std::fs::write(procs_file, "0");
    }
    // Above the numbers that the command's descriptors get.
    fcntl_dupfd_cloexec(std::io::stdin(), 200)
}

/// Waits for the start message and executes the command. Returns only if that fails.
fn become_command(socket: &OwnedFd, has_terminal: bool, command: &mut Command) -> std::io::Error {
    let lifelines = match receive_start(socket) {
        Ok((token, lifelines)) => {
            if let Some(token) = token {
                command.env("TENURE_TERM", token);
            }
            lifelines
        }
        Err(error) => return error.into(),
    };
    if has_terminal && let Err(error) = ioctl_tiocsctty(std::io::stdin()) {
        return error.into();
    }
    let error = command.exec();
    drop(lifelines);
    error
}

fn receive_start(socket: &OwnedFd) -> rustix::io::Result<(Option<String>, Vec<OwnedFd>)> {
    let Some(packet) = wire::receive(socket, RecvFlags::empty())? else {
        // The parent does not need this shim any more.
        std::process::exit(126);
    };
    let mut descriptors = packet.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(Errno::BADF);
    rustix::stdio::dup2_stdin(next()?)?;
    rustix::stdio::dup2_stdout(next()?)?;
    rustix::stdio::dup2_stderr(next()?)?;
    // All descendants inherit the lifeline. So while any of them lives, the seat does not become free before its lease has
    // expired. It is there twice. One number is above the small ones that scripts use for their own descriptors. The other
    // is the smallest one: the kernel closes the files of a dead process from the highest number down, and locks or ports
    // of the command should be free before its seat is.
    let mut lifelines = Vec::new();
    if let Some(lifeline) = descriptors.next() {
        for number in [3, 100] {
            let duplicate = fcntl_dupfd_cloexec(&lifeline, number)?;
            fcntl_setfd(&duplicate, FdFlags::empty())?;
            lifelines.push(duplicate);
        }
    }
    Ok((packet.text.strip_prefix("go ").map(str::to_owned), lifelines))
}
