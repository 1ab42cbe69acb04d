//! The command that the demo's candidates run. It locks a file for as long as it lives, to detect overlaps.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::Write;

/// The hidden first argument that makes this program a probe.
pub(crate) const PROBE: &str = "__probe";

/// The report that a probe writes when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Another probe held the lock.
    pub(super) overlap: bool,
    pub(super) token: u64,
    pub(super) candidate: String,
}

impl Report {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        let overlap = match words.next()? {
            "alone" => false,
            "overlap" => true,
            _ => return None,
        };
        Some(Self { overlap, token: words.next()?.parse().ok()?, candidate: words.next()?.to_owned() })
    }
}

/// Locks the file, writes a report to standard output, and waits to be killed.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let path = args.next().unwrap_or_default();
    let file = File::options().create(true).append(true).open(path);
    let how = match file.as_ref().map(File::try_lock) {
        Ok(Ok(())) => "alone",
        Ok(Err(TryLockError::WouldBlock)) => "overlap",
        _ => "failed",
    };
    let variable = |name| std::env::var(name).unwrap_or_default();
    let line = format!("{how} {} {}\n", variable("TENURE_TERM"), variable("TENURE_CANDIDATE"));
    let _ = std::io::stdout().write_all(line.as_bytes());
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_probe_is_parsed() {
        let report = Report { overlap: false, token: 7, candidate: "alice".to_owned() };
        assert_eq!(Report::parse("alone 7 alice"), Some(report.clone()));
        assert_eq!(Report::parse("overlap 7 alice"), Some(Report { overlap: true, ..report }));
        assert_eq!(Report::parse("failed 7 alice"), None);
    }
}
