//! Output to standard error that never blocks the caller and never ends the process.
//!
//! Standard error blocks when a terminal is stopped with Ctrl-S or a pipe is full, and fails when its reader has gone
//! or a disk is full. A leader must still renew, start its command and handle SIGTERM. So lines go into a bounded
//! queue, and a separate thread writes them. Lines that do not fit or cannot be written are dropped and counted. The
//! count is written after the next line that succeeds.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once};
use std::time::Duration;

use serde_json::json;

use crate::failure::Failure;

/// The capacity of the queue, in bytes.
const CAPACITY: usize = 256 * 1024;

/// How long the process waits at exit for its lines to be written: longer than the delays of a loaded machine, shorter
/// than the time-out of a supervisor.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static STDERR: Queue = Queue::new();
static WRITER: Once = Once::new();
static AS_JSON: AtomicBool = AtomicBool::new(false);
static RAW: AtomicBool = AtomicBool::new(false);

/// Queues a line for standard error.
pub(crate) fn line(text: impl fmt::Display) {
    push(format!("{text}\n").into_bytes());
}

/// Writes the URL of the store to the log, without secrets, and its location as a message for people if `message` is set.
pub(crate) fn store(url: &str, location: &str, message: bool) {
    tracing::info!(store = url, "using this store");
    if message {
        let paint = crate::screen::Paint::for_stream(&io::stderr());
        line(format!("tenure: {}", paint.dim(format!("store: {location}"))));
    }
}

/// Writes the failure of a command, in the format of the log.
pub(crate) fn failure(failure: &Failure) {
    if AS_JSON.load(Ordering::Relaxed) {
        let at = crate::screen::timestamp(std::time::SystemTime::now());
        let (message, exit_code) = (failure.to_string(), failure.code());
        line(json!({ "timestamp": at, "level": "ERROR", "message": message, "exit_code": exit_code }));
    } else {
        line(format!("tenure: {failure}"));
    }
}

/// Waits at most a second until all lines are written. Call this before the process exits.
pub(crate) fn flush() {
    STDERR.flush(FLUSH_TIMEOUT);
}

/// Writes failures and the count of dropped lines as JSON, like the rest of the log.
pub(crate) fn use_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Ends lines on a terminal with a carriage return from now on: the terminal can be in raw mode when a line is written.
#[cfg(target_os = "linux")]
pub(crate) fn on_raw_terminal() {
    RAW.store(true, Ordering::Relaxed);
}

/// Installs a hook that writes panics to this queue.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        let captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        line(if captured { format!("{panic}\n{backtrace}") } else { panic.to_string() });
        if std::thread::current().name() == Some("main") {
            flush();
        }
    }));
}

/// The writer of the log. Each call writes one event.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        push(event.to_vec());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn push(mut line: Vec<u8>) {
    if RAW.load(Ordering::Relaxed) && io::stderr().is_terminal() && line.pop_if(|last| *last == b'\n').is_some() {
        line.extend(b"\r\n");
    }
    STDERR.push(line);
    // If the thread cannot be started, the lines stay in the queue: writing them here could block.
    WRITER.call_once(|| drop(std::thread::Builder::new().name("stderr".to_owned()).spawn(write_lines)));
}

fn write_lines() {
    loop {
        STDERR.write_next(&mut io::stderr(), |lines| dropped(lines, AS_JSON.load(Ordering::Relaxed)));
    }
}

fn dropped(lines: u64, as_json: bool) -> Vec<u8> {
    const MESSAGE: &str = "lines of output were dropped because standard error was blocked or failed";
    let line = if as_json {
        let at = crate::screen::timestamp(std::time::SystemTime::now());
        json!({ "timestamp": at, "level": "WARN", "message": MESSAGE, "lines": lines }).to_string()
    } else {
        format!("tenure: {lines} {MESSAGE}")
    };
    format!("{line}\n").into_bytes()
}

/// A bounded queue of lines to write.
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A line is being written.
    writing: bool,
    dropped: u64,
}

impl Queue {
    const fn new() -> Self {
        let waiting = Waiting { lines: VecDeque::new(), bytes: 0, writing: false, dropped: 0 };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn push(&self, line: Vec<u8>) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > CAPACITY {
            waiting.dropped += 1;
        } else {
            waiting.bytes += line.len();
            waiting.lines.push_back(line);
            self.changed.notify_all();
        }
    }

    /// Waits for a line and writes it. If that succeeds, also writes the count of dropped lines, if there are any.
    fn write_next(&self, out: &mut impl Write, report: impl Fn(u64) -> Vec<u8>) {
        let mut waiting = self.lock();
        let line = loop {
            match waiting.lines.pop_front() {
                Some(line) => break line,
                None => waiting = self.changed.wait(waiting).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        };
        waiting.bytes -= line.len();
        waiting.writing = true;
        drop(waiting);
        let written = write_whole(out, &line).is_ok();
        let before = std::mem::take(&mut self.lock().dropped);
        let reported = before == 0 || (written && write_whole(out, &report(before)).is_ok());
        let mut waiting = self.lock();
        waiting.dropped += u64::from(!written) + if reported { 0 } else { before };
        waiting.writing = false;
        self.changed.notify_all();
    }

    fn flush(&self, within: Duration) {
        let busy = |waiting: &mut Waiting| waiting.writing || !waiting.lines.is_empty();
        drop(self.changed.wait_timeout_while(self.lock(), within, busy));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn write_whole(out: &mut impl Write, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process that shares standard error has made it non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until standard error accepts more output.
#[cfg(target_os = "linux")]
fn wait_for_room() -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    match poll(&mut [PollFd::new(&io::stderr(), PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_room() -> io::Result<()> {
    Err(ErrorKind::WouldBlock.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails `failures` times, then accepts a few bytes at a time.
    struct FlakyWriter {
        failures: u32,
        taken: Vec<u8>,
    }

    impl Write for FlakyWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.failures > 0 {
                self.failures -= 1;
                return Err(ErrorKind::BrokenPipe.into());
            }
            let some = bytes.len().min(3);
            self.taken.extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn report(lines: u64) -> Vec<u8> {
        format!("dropped {lines}\n").into_bytes()
    }

    #[test]
    fn the_count_of_failed_lines_follows_the_next_line_that_succeeds() {
        let queue = Queue::new();
        let mut out = FlakyWriter { failures: 2, taken: Vec::new() };
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            queue.push(line.into());
            queue.write_next(&mut out, report);
        }
        assert_eq!(String::from_utf8(out.taken).unwrap(), "three\ndropped 2\nfour\n");
    }

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let queue = Queue::new();
        queue.push(vec![b'x'; CAPACITY]);
        queue.push("lost\n".into());
        let mut out = Vec::new();
        queue.write_next(&mut out, report);
        assert_eq!(&out[CAPACITY..], b"dropped 1\n");
        queue.push("kept\n".into());
        queue.write_next(&mut out, report);
        assert!(out.ends_with(b"dropped 1\nkept\n"));
    }

    #[test]
    fn flush_waits_for_lines_that_are_written_but_not_beyond_its_time_out() {
        let queue = Queue::new();
        queue.push("stuck\n".into());
        queue.flush(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_next(&mut Vec::new(), report));
            queue.flush(Duration::from_secs(60));
            assert!(queue.lock().lines.is_empty() && !queue.lock().writing);
        });
    }

    #[test]
    fn the_count_has_the_format_of_the_log() {
        assert!(dropped(7, false).starts_with(b"tenure: 7 lines of output were dropped"));
        let json: serde_json::Value = serde_json::from_slice(&dropped(7, true)).unwrap();
        assert_eq!((&json["lines"], &json["level"]), (&7.into(), &"WARN".into()));
    }
}
