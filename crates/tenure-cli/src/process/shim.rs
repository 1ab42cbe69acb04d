//! What becomes the command.
//!
//! Between its birth and the command there is something to be done that only the process itself can
//! do: ask the kernel to be killed when the guard is gone, whatever the guard died of.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::{MYSELF, SHIM, wire};

/// A command that dies with the thread that spawns it, and takes the rest of its life from a shim. What
/// this returns beside it is the line to the shim: standard input must be [handed](hand_stdin) over it.
pub(crate) fn command<A: AsRef<OsStr>>(
    door: &Path,
    args: impl IntoIterator<Item = A>,
) -> std::io::Result<(Command, OwnedFd)> {
    let (here, there) = wire::pair()?;
    let mut command = Command::new(MYSELF);
    command.arg0("tenure").arg(SHIM).arg(getpid().as_raw_nonzero().to_string()).arg(door).args(args);
    command.stdin(Stdio::from(there)).process_group(0);
    Ok((command, here))
}

/// Hands its standard input to a shim. If that is gone already, this will show.
pub(crate) fn hand_stdin(line: &OwnedFd, stdin: impl AsFd) {
    let _ = wire::send(line, "stdin", &[stdin.as_fd()]);
}

/// Becomes the command: `GUARD_PID CGROUP_DOOR CMD ARGS…`. Standard input is the line to the guard,
/// which sends the true one over it.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let guard = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let door = args.next().unwrap_or_default();
    let Some(program) = args.next() else { std::process::exit(2) };

    let error = match prepare(guard, &door) {
        // Returns only if it fails.
        Ok(line) => (Command::new(program).args(args).exec(), Some(line)),
        Err(error) => (error.into(), None),
    };
    if let (error, Some(line)) = error {
        let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
        let _ = wire::send(line, &errno.to_string(), &[]);
    }
    std::process::exit(126);
}

/// Returns a line to the guard that closes when the command takes over.
fn prepare(guard: Option<Pid>, door: &OsString) -> rustix::io::Result<OwnedFd> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != guard {
        // It died before it was asked for.
        std::process::exit(126);
    }
    let line = fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let stdin = wire::receive(&line, RecvFlags::empty())?.and_then(|packet| packet.descriptors.into_iter().next());
    rustix::stdio::dup2_stdin(stdin.ok_or(rustix::io::Errno::BADF)?)?;
    if !door.is_empty() {
        // Where it does not work, the guard does without.
        let _ = std::fs::write(door, "0");
    }
    Ok(line)
}
