//! The processes of `tenure run`.
//!
//! ```text
//!   tenure ──────── orders, descriptors ───────▶ guard ── spawns ──▶ shim ══ exec ══▶ CMD
//!   (the election)  ◀── started, exited, gone ── (a session of its own,               (a process group
//!                                                 parent and reaper of                  of its own, no
//!                                                 all that CMD starts)                  terminal)
//! ```
//!
//! The command must be dead by the end of its term even if `tenure` is stopped, killed or cut off, so
//! the end is enforced by a process that does nothing else. All three are this one program, executed
//! again with a hidden first argument. A health command runs in the same way, with a guard of its own.
//!
//! - `wire.rs`: what tenure and the guard say to each other
//! - `guard.rs`: the guard itself
//! - `shim.rs`: what becomes the command
//! - `family.rs`: signals to, and the end of, everything that descends from this process
//! - `cgroup.rs`: the same by control group, where there is one to be had
//! - `keeper.rs`: tenure's side: starts the guard, asks it, and stands in for it should it fail
//! - `init.rs`: what process 1 of a container does for all three
//! - `signals.rs`, `terminal.rs`: the signals that this program acts on, and its terminal

pub(crate) mod cgroup;
pub(crate) mod family;
pub(crate) mod guard;
pub(crate) mod init;
pub(crate) mod keeper;
pub(crate) mod shim;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod wire;

use std::ffi::CStr;

use rustix::time::{ClockId, clock_gettime};

/// The hidden first argument that makes this program a guard.
pub(crate) const GUARD: &str = "__guard";

/// The hidden first argument that makes this program a shim.
pub(crate) const SHIM: &str = "__shim";

/// The name that a guard goes by in lists of processes.
const GUARD_NAME: &CStr = c"tenure-guard";

/// This program, whatever has become of the file it was started from.
const MYSELF: &str = "/proc/self/exe";

/// Nanoseconds of the clock that terms are counted by.
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

    /// The ignored ones, from the text of `/proc/self/status`.
    fn ignored(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
    }
}

/// The signals that this process ignores: before it has asked for any, those that it was started to ignore
/// (`nohup`, or in the background of a script).
pub(crate) fn ignored_signals() -> SignalSet {
    SignalSet::ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_found() {
        // What `nohup` leaves: SIGHUP, number 1.
        let ignored = SignalSet::ignored("Name:\ttenure\nSigIgn:\t0000000000000001\nSigCgt:\tf\n");
        assert!(ignored.contains(1) && !ignored.contains(2));
        assert_eq!(SignalSet::ignored(""), SignalSet(0));
    }
}
