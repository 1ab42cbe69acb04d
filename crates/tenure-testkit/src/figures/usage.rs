//! What a process uses.

use std::time::Duration;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub memory: u64,
    /// Time spent on a processor.
    pub processor: Duration,
}

impl Usage {
    /// Of this process; nothing where the system does not tell.
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let memory = kilobytes.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1024;
        let nanos = std::fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
            .sum();
        Self { memory, processor: Duration::from_nanos(nanos) }
    }
}
