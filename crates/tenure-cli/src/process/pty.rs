//! A terminal of the command's own, for interactive commands (`--tty`).
//!
//! ```text
//!   the user's terminal ◀── copies bytes and window size ──▶ pseudo-terminal ◀──▶ CMD, and its job control
//!   (raw: no key has a meaning)          tenure              (Ctrl-C and the like have their meaning here)
//! ```
//!
//! The command has a session of its own, because its guard must not end with the user's session. A session needs its own
//! terminal for job control.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::signals::Signals;
use super::terminal;

/// How often to check whether this process is in the foreground again.
const FOREGROUND_CHECK: Duration = Duration::from_millis(200);

/// How long to wait for the last output of the command. The user's terminal can be stopped with Ctrl-S.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A pseudo-terminal, connected to the user's terminal until this is dropped.
pub(crate) struct Pty {
    copying: JoinHandle<()>,
}

impl Pty {
    /// Opens a pseudo-terminal and returns the command's side of it.
    pub(crate) fn open() -> io::Result<(Self, OwnedFd)> {
        // Opened again, so that other programs which use the same terminal do not get a descriptor that never blocks.
        let user = rustix::fs::open("/dev/tty", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let its = ioctl_tiocgptpeer(&ours, flags)?;
        fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
        copy_window_size(&user, &ours);
        let signals = Signals::listen(&[Signal::WINCH, Signal::CONT])?;
        #[allow(
            deprecated,
            reason = "its replacement is unsafe, for types that can change their descriptor; an OwnedFd cannot"
        )]
        let (user, ours) = (AsyncFd::new(user)?, AsyncFd::new(ours)?);
        Ok((Self { copying: tokio::spawn(connect(user, ours, signals)) }, its))
    }

    /// Waits until the last output of the command is shown, once the command is gone.
    pub(crate) async fn finish(mut self) {
        let _ = tokio::time::timeout(LAST_OUTPUT, &mut self.copying).await;
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // Drops the raw mode, too.
        self.copying.abort();
    }
}

/// Copies between the two terminals until every process of the command has closed its side.
async fn connect(user: AsyncFd<OwnedFd>, ours: AsyncFd<OwnedFd>, mut signals: Signals) {
    let mut raw = RawMode::new(&user);
    let input = async {
        // If the user's terminal is gone, SIGHUP follows.
        let _ = copy(&user, &ours, true).await;
        std::future::pending().await
    };
    let output = copy(&ours, &user, false);
    tokio::pin!(input, output);
    loop {
        tokio::select! {
            biased;
            // A read fails once no process has the terminal open.
            _ = &mut output => return,
            () = &mut input => {}
            signal = signals.next() => match raw.as_mut() {
                // A shell sets the mode of its terminal when it stops and resumes a job.
                Some(raw) if signal == Signal::CONT.as_raw() => raw.enter(),
                _ => copy_window_size(&user, &ours),
            },
            // A shell does not tell a job that it brings from the background to the foreground.
            () = tokio::time::sleep(FOREGROUND_CHECK), if !raw.as_ref().is_some_and(|raw| raw.is_set) => {
                match raw.as_mut() {
                    Some(raw) => raw.enter(),
                    None => raw = RawMode::new(&user),
                }
            }
        }
    }
}

fn copy_window_size(from: impl AsFd, to: impl AsFd) {
    if let Ok(size) = tcgetwinsize(from) {
        let _ = tcsetwinsize(to, size);
    }
}

/// Copies bytes until one side fails.
async fn copy(from: &AsyncFd<OwnedFd>, to: &AsyncFd<OwnedFd>, typed: bool) -> io::Result<()> {
    let mut bytes = [0; 8 * 1024];
    loop {
        let mut ready = from.readable().await?;
        // The kernel stops a process that reads its terminal in the background.
        while typed && terminal::is_in_background() {
            tokio::time::sleep(FOREGROUND_CHECK).await;
        }
        let Ok(read) = ready.try_io(|from| Ok(rustix::io::read(from, &mut bytes)?)) else { continue };
        let mut rest = match read {
            Ok(0) => return Ok(()),
            Ok(length) => &bytes[..length],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        while !rest.is_empty() {
            match to.writable().await?.try_io(|to| Ok(rustix::io::write(to, rest)?)) {
                Ok(Ok(written)) => rest = &rest[written..],
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// The raw mode of the user's terminal, until this is dropped.
struct RawMode {
    terminal: OwnedFd,
    before: Termios,
    /// Whether the mode was set when this process was last resumed. It was not if that was in the background.
    is_set: bool,
}

impl RawMode {
    /// Sets the raw mode, unless this process is in the background.
    fn new(terminal: &AsyncFd<OwnedFd>) -> Option<Self> {
        if terminal::is_in_background() {
            return None;
        }
        let terminal = terminal.get_ref().try_clone().ok()?;
        let mut raw = Self { before: tcgetattr(&terminal).ok()?, terminal, is_set: false };
        raw.enter();
        Some(raw)
    }

    fn enter(&mut self) {
        let mut mode = self.before.clone();
        mode.make_raw();
        self.is_set = self.set(&mode);
    }

    /// Sets a mode, and returns whether this process is in the foreground: the kernel stops a process that does this in
    /// the background.
    fn set(&self, mode: &Termios) -> bool {
        let may = !terminal::is_in_background();
        while may && tcsetattr(&self.terminal, OptionalActions::Now, mode) == Err(Errno::INTR) {}
        may
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        self.set(&self.before);
    }
}
