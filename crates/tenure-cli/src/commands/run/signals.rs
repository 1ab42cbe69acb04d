//! The signals that ask `tenure run` to leave.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::process::ignored_signals;

/// The signals that ask to leave, except those that this process was started to ignore (`nohup`, or in
/// the background of a script).
pub(crate) struct Signals([Option<Signal>; 3]);

const KINDS: [fn() -> SignalKind; 3] = [SignalKind::terminate, SignalKind::interrupt, SignalKind::hangup];

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let mut signals = [None, None, None];
        for (slot, kind) in signals.iter_mut().zip(KINDS) {
            if !ignored.contains(kind().as_raw_value()) {
                *slot = Some(signal(kind())?);
            }
        }
        Ok(Self(signals))
    }

    /// The number of the next one. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> i32 {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            biased;
            () = next(terminate) => SignalKind::terminate().as_raw_value(),
            () = next(interrupt) => SignalKind::interrupt().as_raw_value(),
            () = next(hangup) => SignalKind::hangup().as_raw_value(),
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending::<()>().await;
    }
}
