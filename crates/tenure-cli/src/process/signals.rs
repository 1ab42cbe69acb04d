//! The signals that this program acts on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use super::ignored_signals;
use crate::args::Forward;

/// The signals that ask `tenure run` to leave.
pub(crate) const LEAVE: [Signal; 5] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::ALARM];

/// The signals that process 1 of a container passes on to `tenure run`, besides those that ask it to leave.
pub(crate) const PASS_ON: [Signal; 3] = [Signal::USR1, Signal::USR2, Signal::WINCH];

/// Returns the signal that an option names.
pub(crate) fn forwarded(option: Forward) -> Signal {
    match option {
        Forward::Hup => Signal::HUP,
        Forward::Int => Signal::INT,
        Forward::Quit => Signal::QUIT,
        Forward::Usr1 => Signal::USR1,
        Forward::Usr2 => Signal::USR2,
        Forward::Winch => Signal::WINCH,
    }
}

/// Returns whether a terminal sends this signal for a key: Ctrl-C or Ctrl-\\.
pub(crate) fn is_typed(signal: i32) -> bool {
    [Signal::INT, Signal::QUIT].iter().any(|typed| typed.as_raw() == signal)
}

/// A set of signals that can be awaited.
pub(crate) struct Signals(Vec<(i32, unix::Signal)>);

impl Signals {
    /// Listens for these signals, except those that this process ignored from its start (under `nohup`, or in the
    /// background of a script).
    pub(crate) fn listen(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_signals();
        let numbers = signals.iter().map(|signal| signal.as_raw()).filter(|number| !ignored.contains(*number));
        numbers.map(|number| Ok((number, signal(SignalKind::from_raw(number))?))).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next signal and returns its number. Cancel safe: no signal is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            let received =
                self.0.iter_mut().find_map(|(number, signal)| signal.poll_recv(cx).is_ready().then_some(*number));
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
