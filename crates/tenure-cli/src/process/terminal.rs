//! The terminal that this process shares with a shell: background and Ctrl-Z.
//!
//! The command has no controlling terminal, so the kernel neither stops it at Ctrl-Z nor keeps it from reading a terminal
//! in whose background it runs. It would consume input that is typed for other programs.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::family;
use super::guard_handle::{Orders, lock};
use super::signals::Signals;
use crate::stderr;

/// Returns whether standard input is this process's terminal and another process group is in its foreground.
pub(crate) fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(std::io::stdin());
    foreground.is_ok_and(|group| family::own_group() != Some(group.as_raw_nonzero().get()))
}

/// How often to check whether this process is in the foreground again: not every shell sends a signal then.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// How long to wait at most until the command is stopped.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

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
            let pass_on = |signal: Signal| with(&current, |guard| guard.pass_on(signal.as_raw()));
            let mut is_held = false;
            loop {
                tokio::select! {
                    _ = signals.next() => {
                        // Without a shell to resume this process, the kernel ignores Ctrl-Z, too.
                        if family::is_orphaned() {
                            continue;
                        }
                        pass_on(Signal::STOP);
                        // Before the shell continues, and asks for input that the command could still read.
                        let until = tokio::time::Instant::now() + STOPS_WITHIN;
                        while with(&current, Orders::command_runs) == Some(true) && tokio::time::Instant::now() < until {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
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
        *lock(&self.0) = Some(guard);
    }
}

fn with<T>(current: &Mutex<Option<Orders>>, act: impl FnOnce(&Orders) -> T) -> Option<T> {
    lock(current).as_ref().map(act)
}
