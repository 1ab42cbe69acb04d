//! The signals that this program acts on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use super::ignored_signals;

/// The signals that ask `tenure run` to leave.
pub(crate) const LEAVE: [Signal; 5] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::ALARM];

/// The signals that `tenure run` passes on to its command.
pub(crate) const PASS_ON: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// Signals to wait for.
pub(crate) struct Signals(Vec<(i32, unix::Signal)>);

impl Signals {
    /// Listens for these signals, except those that this process was started to ignore (`nohup`, or in the
    /// background of a script).
    pub(crate) fn listen(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_signals();
        let numbers = signals.iter().map(|signal| signal.as_raw()).filter(|number| !ignored.contains(*number));
        numbers.map(|number| Ok((number, signal(SignalKind::from_raw(number))?))).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next of them and returns its number. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            let heard =
                self.0.iter_mut().find_map(|(number, signal)| signal.poll_recv(cx).is_ready().then_some(*number));
            heard.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
