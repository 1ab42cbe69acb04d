//! The way to the engine: what can be asked of it, and its thread.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::{Incarnation, Leader, Moment, Reading, Rules, Score, Token};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Check, Driver, ElectionId, log_panic};
use crate::clock::Alarm;
use crate::election::Shared;
use crate::handlers::HandlerLine;
use crate::options::OnOverrun;
use crate::{CandidateStatus, Clock, DynStore, Ended, Error, Interest, Metadata, Report, SeatName, Term};

/// What users ask of the engine.
pub(crate) enum Command {
    Start(Box<Start>),
    Bid {
        election: ElectionId,
        reply: oneshot::Sender<Result<Option<Term>, Error>>,
    },
    /// The last handle of a term that is released with it was dropped.
    Dropped {
        election: ElectionId,
        token: Token,
    },
    Release {
        election: ElectionId,
    },
    StepDown {
        election: ElectionId,
    },
    RequestStepDown {
        election: ElectionId,
        reply: oneshot::Sender<Result<Option<Leader>, Error>>,
    },
    Transfer {
        election: ElectionId,
        to: String,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Report {
        election: ElectionId,
        score: Score,
        metadata: Metadata,
    },
    Checked {
        election: ElectionId,
        report: Report,
    },
    Candidates {
        seat: SeatName,
        reply: oneshot::Sender<Result<Vec<CandidateStatus>, Error>>,
    },
    Drained {
        election: ElectionId,
        token: Token,
    },
    Stop {
        election: ElectionId,
    },
    Look {
        seat: SeatName,
        reply: oneshot::Sender<Result<Reading, Error>>,
    },
    Forget {
        seat: SeatName,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Sleep {
        until: Moment,
        reply: oneshot::Sender<()>,
    },
    OnSignal {
        reply: oneshot::Sender<()>,
    },
    /// To be answered once everything is announced that there is to announce.
    Settle {
        reply: oneshot::Sender<()>,
    },
    /// To be answered once everything logged so far is emitted, or the subscriber takes too long.
    Flush {
        reply: oneshot::Sender<()>,
    },
    /// All handles are gone: stop everything, then end.
    Shutdown,
}

/// An election to be run.
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rules: Rules,
    pub(crate) seed: u64,
    pub(crate) handlers: Option<HandlerLine>,
    pub(crate) stop_on: Option<CancellationToken>,
    pub(crate) on_overrun: OnOverrun,
    /// A health check, how often it is asked, and how long it may take.
    pub(crate) check: Option<(Check, Duration, Duration)>,
    /// Whether it is announced.
    pub(crate) announces: bool,
}

/// The way to the engine. Never blocks; what is sent after the engine's end is dropped.
#[derive(Clone, Debug)]
pub(crate) struct EngineHandle {
    commands: mpsc::UnboundedSender<Command>,
    clock: Clock,
}

impl EngineHandle {
    /// Returns whether the engine is there to hear it.
    pub(crate) fn send(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.clock.nudge();
        sent
    }

    /// Waits until everything logged so far is emitted, or the subscriber takes too long.
    pub(crate) async fn flush(&self) {
        let (reply, flushed) = oneshot::channel();
        self.send(Command::Flush { reply });
        let _ = flushed.await;
    }

    pub(crate) fn drained(&self, election: ElectionId, token: Token) {
        self.send(Command::Drained { election, token });
    }

    pub(crate) fn release(&self, election: ElectionId, token: Token) {
        self.send(Command::Dropped { election, token });
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self { commands: mpsc::unbounded_channel().0, clock: Clock::system() }
    }
}

/// Starts the engine's thread.
pub(crate) fn start(store: Arc<dyn DynStore>, clock: Clock, process: Incarnation) -> Result<EngineHandle, Error> {
    let (commands, mut inbox) = mpsc::unbounded_channel();
    let handle = EngineHandle { commands, clock: clock.clone() };
    let (ready, is_ready) = std::sync::mpsc::channel();
    let own_handle = handle.clone();
    std::thread::Builder::new()
        .name("tenure".to_owned())
        .spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(async {
                let alarm = match Alarm::new(&clock) {
                    Ok(alarm) => alarm,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let interest = Interest::new();
                store.attach(&clock, &interest.news());
                let _ = ready.send(Ok(()));
                let driver = Driver::new(store, interest, clock, own_handle, process);
                if let Err(panic) = AssertUnwindSafe(driver.run(&mut inbox, alarm)).catch_unwind().await {
                    log_panic(&*panic);
                }
                // Whoever came too late is told so, and whoever comes later is turned away.
                inbox.close();
                while let Ok(command) = inbox.try_recv() {
                    if let Command::Start(start) = command {
                        start.shared.end(Ended::EngineGone);
                    }
                }
            });
        })
        .map_err(|error| Error::Engine(error.to_string()))?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(handle),
        Ok(Err(error)) => Err(Error::Engine(error.to_string())),
        Err(_) => Err(Error::Engine("its thread ended before it was ready".to_owned())),
    }
}
