//! The processes of `tenure run`.
//!
//! ```text
//!   tenure ──────── orders, descriptors ───────▶ guard ── spawns ──▶ shim ══ exec ══▶ CMD
//!   (the election)  ◀── started, exited, gone ── (a session of its own,               (a process group
//!                                                 parent and reaper of                  of its own, no
//!                                                 all that CMD starts)                  terminal)
//! ```
//!
//! The command must be dead by the end of its term even if `tenure` is stopped, killed or cut off. So a separate
//! process, the guard, does nothing but enforce that end. Guard and shim are this same program, executed again with a
//! hidden first argument. A health command runs in the same way, with a guard of its own.
//!
//! - `wire.rs`: the messages between tenure and the guard
//! - `plan.rs`: the programs of a term: hooks and the command
//! - `guard.rs`: the guard itself
//! - `guard_handle.rs`: tenure's side: starts the guard, sends it orders, and kills the command if the guard fails
//! - `shim.rs`: the process that executes the command
//! - `family.rs`: finds, kills and reaps the descendants of a process
//! - `cgroup.rs`: kills them by control group, where one can be created
//! - `will.rs`: frees the seat when tenure was killed
//! - `companion.rs`: the same for programs that use the library
//! - `init.rs`: process 1 of a container
//! - `pty.rs`: a terminal of the command's own
//! - `signals.rs`, `terminal.rs`: the signals that this program handles, and its terminal

pub(crate) mod cgroup;
pub(crate) mod companion;
pub(crate) mod family;
pub(crate) mod guard;
pub(crate) mod guard_handle;
pub(crate) mod init;
pub(crate) mod plan;
pub(crate) mod pty;
pub(crate) mod shim;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod will;
pub(crate) mod wire;

use std::ffi::CStr;

use rustix::time::{ClockId, clock_gettime};

/// The hidden first argument that makes this program a guard.
pub(crate) const GUARD: &str = "__guard";

/// The hidden first argument that makes this program a shim.
pub(crate) const SHIM: &str = "__shim";

/// The name of a guard in lists of processes.
const GUARD_NAME: &CStr = c"tenure-guard";

/// The path of this program. It works even if the file was replaced or removed since the start.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Returns the time of the clock that terms are measured with, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A set of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalSet(u64);

impl SignalSet {
    pub(crate) fn contains(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }

    /// Parses a set of signals, such as `SigIgn:`, from the text of `/proc/PID/status`.
    fn parse(status: &str, name: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        Self(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
    }
}

/// Returns the signals that this process ignores. Before it registers any handler, these are the signals that it
/// ignored from its start (under `nohup`, or in the background of a script).
pub(crate) fn ignored_signals() -> SignalSet {
    SignalSet::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "SigIgn:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_found() {
        // `nohup` ignores SIGHUP, number 1.
        let ignored = SignalSet::parse("Name:\ttenure\nSigIgn:\t0000000000000001\nSigCgt:\tf\n", "SigIgn:");
        assert!(ignored.contains(1) && !ignored.contains(2));
        assert_eq!(SignalSet::parse("", "SigIgn:"), SignalSet(0));
    }
}
