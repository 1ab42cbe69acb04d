//! The command that the candidates of the demo run: holds a lock on one file for as long as it lives.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::Write;

/// The hidden first argument that makes this program a probe.
pub(crate) const PROBE: &str = "__probe";

/// What a probe has to tell when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Another had the lock.
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

/// Takes the lock on the file, tells so on standard output, and waits to be ended.
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
    fn what_a_probe_tells_is_understood() {
        let report = Report { overlap: false, token: 7, candidate: "alice".to_owned() };
        assert_eq!(Report::parse("alone 7 alice"), Some(report.clone()));
        assert_eq!(Report::parse("overlap 7 alice"), Some(Report { overlap: true, ..report }));
        assert_eq!(Report::parse("failed 7 alice"), None);
    }
}
