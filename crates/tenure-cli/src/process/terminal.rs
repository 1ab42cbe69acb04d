//! The terminal that this process shares with a shell: background and Ctrl-Z.
//!
//! The command has no controlling terminal, so the kernel neither stops it at Ctrl-Z nor keeps it from reading a terminal
//! in whose background it runs. It would consume input that is typed for other programs.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::family;
use super::guard_handle::Orders;
use super::signals::Signals;
use crate::stderr;

/// Returns whether standard input is this process's terminal and another process group is in its foreground.
pub(crate) fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(std::io::stdin());
    foreground.is_ok_and(|group| family::own_group() != Some(group.as_raw_nonzero().get()))
}

/// How often to check whether this process is in the foreground again: not every shell sends a signal then.
const CHECK_EVERY: Duration = Duration::from_millis(100);

const HELD: &str = "tenure: the command stays stopped in the background, because it could read what is typed for other \
                    programs; bring it to the foreground (fg), or start it with < /dev/null";

/// Stops the command together with this process at Ctrl-Z, and resumes it when it does not run in the background.
pub(crate) struct JobControl(Arc<Mutex<Option<Orders>>>);

impl JobControl {
    /// Starts to handle Ctrl-Z. `prints` says whether to print why a command stays stopped.
    ///
    /// # Errors
    /// If the signal cannot be handled.
    pub(crate) fn start(prints: bool) -> io::Result<Self> {
        let mut signals = Signals::listen(&[Signal::TSTP])?;
        let guard = Arc::<Mutex<Option<Orders>>>::default();
        let current = guard.clone();
        tokio::spawn(async move {
            let pass_on = |signal: Signal| {
                if let Some(guard) = &*current.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
                    guard.pass_on(signal.as_raw());
                }
            };
            let mut is_held = false;
            loop {
                tokio::select! {
                    _ = signals.next() => {
                        // Without a shell to resume this process, the kernel ignores Ctrl-Z, too.
                        if family::is_orphaned() {
                            continue;
                        }
                        pass_on(Signal::STOP);
                        let _ = kill_process(getpid(), Signal::STOP);
                        // This process was resumed.
                        if prints && !is_held && is_in_background() {
                            stderr::line(HELD);
                        }
                        is_held = true;
                    }
                    () = tokio::time::sleep(CHECK_EVERY), if is_held => {}
                }
                if is_held && !is_in_background() {
                    pass_on(Signal::CONT);
                    is_held = false;
                }
            }
        });
        Ok(Self(guard))
    }

    /// Sets the guard of the command.
    pub(crate) fn follow(&self, guard: Orders) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(guard);
    }
}
