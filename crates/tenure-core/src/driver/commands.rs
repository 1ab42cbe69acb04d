//! The commands that users send to the engine, and the engine's thread.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::{Incarnation, LastWill, Moment, Reading, Rules, Score, Token, WillStep};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::list::Listed;
use super::{Check, Driver, ElectionId, log_panic};
use crate::clock::Alarm;
use crate::election::Shared;
use crate::handlers::HandlerLine;
use crate::options::OnOverrun;
use crate::{CandidateStatus, Clock, DynStore, Ended, Error, Interest, Leader, Metadata, Report, SeatName, Term};

/// A command of a user to the engine.
pub(crate) enum Command {
    Start(Start),
    Bid {
        election: ElectionId,
        reply: oneshot::Sender<Result<Option<Term>, Error>>,
    },
    /// The last handle of a term was dropped that releases the seat.
    Dropped {
        election: ElectionId,
        token: Token,
    },
    Release {
        election: ElectionId,
    },
    /// The work of this term is done; other candidates go first.
    Yield {
        election: ElectionId,
        token: Token,
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
    List {
        reply: oneshot::Sender<Result<Vec<Listed>, Error>>,
    },
    /// One attempt to execute a last will.
    ExecuteWill {
        seat: SeatName,
        will: Box<LastWill>,
        lease: Duration,
        within: Duration,
        reply: oneshot::Sender<Result<Option<WillStep>, Error>>,
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
    /// Replies when all announcements of this process are written.
    Settle {
        reply: oneshot::Sender<()>,
    },
    /// Replies with the number of entries in each collection.
    #[cfg(test)]
    Sizes {
        reply: oneshot::Sender<Vec<(&'static str, usize)>>,
    },
    /// Replies when all log lines so far are emitted, or the subscriber takes too long.
    Flush {
        reply: oneshot::Sender<()>,
    },
    /// All handles were dropped: stop all elections, then end.
    Shutdown,
}

/// An election for the engine to run.
///
/// It is small, because very many can wait for the engine at once.
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) seed: u64,
    pub(crate) handlers: Option<Box<HandlerLine>>,
    pub(crate) stop_on: Option<CancellationToken>,
    pub(crate) on_overrun: OnOverrun,
    /// A health check, its interval and its time-out.
    pub(crate) check: Option<Box<(Check, Duration, Duration)>>,
    /// Whether the candidate is announced.
    pub(crate) announces: bool,
}

/// A handle that sends commands to the engine. It never blocks. Commands after the end of the engine are dropped.
#[derive(Clone, Debug)]
pub(crate) struct EngineHandle {
    commands: mpsc::UnboundedSender<Command>,
    clock: Clock,
}

impl EngineHandle {
    /// Sends a command, and returns whether the engine is running.
    pub(crate) fn send(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.clock.nudge();
        sent
    }

    /// Waits until all log lines so far are emitted, or the subscriber takes too long.
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

    pub(crate) fn finish(&self, election: ElectionId, token: Token) {
        self.send(Command::Yield { election, token });
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
                // Elections that were sent too late end, and later commands are refused.
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
