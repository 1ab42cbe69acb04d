//! What becomes the command.
//!
//! Between its birth and the command there is something to be done that only the process itself can
//! do: ask the kernel to be killed when the guard is gone, whatever the guard died of.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::wire;

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
fn prepare(guard: Option<Pid>, door: &OsString) -> rustix::io::Result<std::os::fd::OwnedFd> {
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
