//! Process 1 of a container: forwards signals and reaps orphans.
//!
//! Every orphan of the container becomes a child of process 1, whichever program started it. Process 1 must reap all
//! of them, and must not kill those that do not belong to the command. So as process 1 this program starts itself
//! again as a child, forwards signals to that child, and reaps orphans.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::signals::{self, LEAVE, PASS_ON, Signals};
use super::wire::Exit;
use super::{GUARD_NAME, THIS_PROGRAM, family};

/// Runs this program as a child and returns its exit code.
///
/// # Errors
/// If the child cannot be started.
pub(crate) fn run() -> std::io::Result<u8> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut ended = Signals::listen(&[Signal::CHILD])?;
        let terminal = fs::File::open("/dev/tty").ok();
        let in_foreground = terminal.as_ref().filter(|terminal| is_foreground_of(terminal));
        // Otherwise a terminal sends Ctrl-C and Ctrl-\ to the child directly.
        let forwards_typed = terminal.is_none() || in_foreground.is_some();
        let forwarded = LEAVE.into_iter().chain(PASS_ON);
        let forwarded: Vec<_> =
            forwarded.filter(|signal| forwards_typed || !signals::is_typed(signal.as_raw())).collect();
        let mut signals = Signals::listen(&forwarded)?;
        let mut args = std::env::args_os();
        let mut program = Command::new(THIS_PROGRAM);
        program.arg0(args.next().unwrap_or_else(|| "tenure".into())).args(args);
        if in_foreground.is_some() {
            program.process_group(0);
        }
        let child = Pid::from_child(&program.spawn()?);
        if let Some(terminal) = in_foreground {
            // From now on, keys reach the child alone, and a signal to this process can only come from another process.
            let _ = tcsetpgrp(terminal, child);
        }
        let mut exit = None;
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    if let Some(signal) = Signal::from_named_raw(signal).filter(|_| exit.is_none()) {
                        let _ = kill_process(child, signal);
                    }
                }
                _ = ended.next() => while reap(child, &mut exit) {},
            }
            // If the child was killed, its guard still has to kill the command. The guard would die with process 1.
            if let Some(exit) = exit
                && !family::children().into_iter().any(is_guard)
            {
                return Ok(Exit::code(exit));
            }
        }
    })
}

/// Returns whether the group of this process is in the foreground of its terminal.
fn is_foreground_of(terminal: &fs::File) -> bool {
    // Both are unknown if the group was created outside of this namespace.
    let foreground = tcgetpgrp(terminal).map(|group| group.as_raw_nonzero().get());
    foreground.is_ok_and(|group| family::own_group() == Some(group))
}

/// Reaps a batch of children, and returns whether more may have ended.
fn reap(child: Pid, exit: &mut Option<Exit>) -> bool {
    let remaining = family::reap(family::BATCH, |pid, status| {
        if pid == child {
            *exit = Some(status.into());
        }
    });
    remaining == family::Remaining::Unreaped
}

fn is_guard(process: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", process.as_raw_nonzero())).unwrap_or_default();
    name.trim_end().as_bytes() == GUARD_NAME.to_bytes()
}
