//! The memory and CPU time of this process.

use std::time::Duration;

/// The memory and CPU time that a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// The resident memory of the process, in bytes.
    pub memory: u64,
    /// The largest resident memory that the process has ever had, in bytes.
    pub peak: u64,
    /// The CPU time that all threads of the process have used.
    pub processor: Duration,
}

impl Usage {
    /// Returns the usage of this process; zero where the system does not report it.
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let bytes = |field: &str| {
            let kilobytes = status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"));
            kilobytes.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        let nanos = std::fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
            .sum();
        Self { memory: bytes("VmRSS:"), peak: bytes("VmHWM:"), processor: Duration::from_nanos(nanos) }
    }
}
