//! The command that all candidates run. It takes the time as its first act, locks a file to detect overlaps, reports,
//! and waits. When it is told to, it takes the time as its last act and ends.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// The first argument of this bench that makes it the command.
pub(crate) const PROBE: &str = "__probe";

/// The names of the socket and of the lock in the folder of a contest.
pub(crate) const SOCKET: &str = "reports";
const LOCK: &str = "alone";

/// Returns the time of a clock that all processes of this machine share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs the command: `FOLDER CANDIDATE`.
pub(crate) fn main(words: &[String]) {
    let began = now();
    let [folder, candidate] = words else { panic!("two arguments are needed") };
    let folder = Path::new(folder);
    let file = File::options().create(true).append(true).open(folder.join(LOCK));
    let is_alone = file.as_ref().is_ok_and(|file| file.try_lock().is_ok());
    // The bench is gone: nothing is left to report.
    let Ok(mut bench) = UnixStream::connect(folder.join(SOCKET)) else { return };
    let _ = bench.write_all(format!("{began} {is_alone} {candidate}\n").as_bytes());
    // Without an order to end, the connection is closed.
    if bench.read(&mut [0]).is_ok_and(|count| count == 1) {
        let _ = bench.write_all(format!("{}\n", now()).as_bytes());
    }
}
