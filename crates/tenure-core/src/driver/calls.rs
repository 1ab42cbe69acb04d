//! Calls to the store, on behalf of one election each.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, Either, select};
use tenure_protocol::{Candidate, Change, Moment, Reading, Record, Request, Seat, Standing, Swap, Token, Version};
use tokio::sync::oneshot;
use tracing::{Level, debug, error};

use super::lanes::{Lane, Rank, Waiting};
use super::{Driver, Due, ElectionId, Timer};
use crate::handlers::panic_message;
use crate::store::BoxFuture;
use crate::{Attended, Error, SeatName, Seen, StoreError, log};

/// How long somebody who asks once waits for the store.
const ONE_OFF: Duration = Duration::from_secs(10);

/// What a pending future comes to.
pub(super) enum Answer {
    Read(Result<Reading, StoreError>),
    Written(Result<Swap, StoreError>),
    Changed(Change),
    Requests(Vec<Request>),
    Roster(Vec<Standing>),
    /// Whom to hand over to, and the term that is to end.
    Heir(Result<(Candidate, Token), Error>, oneshot::Sender<Result<(), Error>>),
    StopAsked,
    /// Of the process, and not of one election: it has attended, or told of itself.
    Attended(Result<Attended, StoreError>),
    Noticed(SeatName, Result<(), StoreError>),
}

pub(super) type Pending = Abortable<BoxFuture<'static, (ElectionId, u64, Answer)>>;

/// A future among the pending ones. Dropped with this.
pub(super) struct Underway {
    pub(super) number: u64,
    pub(super) reads: bool,
    pub(super) time_out: Option<Timer>,
    /// How to end it, once it has begun, and its place among the calls to the store, if it is one.
    running: Option<(AbortHandle, Option<Lane>)>,
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some((abort, _)) = &self.running {
            abort.abort();
        }
    }
}

impl Driver {
    pub(super) fn read(&mut self, election: ElectionId) {
        let (store, seat) = (self.store.clone(), self.seat(election));
        let entry = &self.entries[&election];
        let rank = if entry.shared.state().term.is_some() {
            Rank::Keeps
        } else if entry.unsettled {
            Rank::Settles
        } else {
            Rank::Follows
        };
        self.call_store(
            election,
            true,
            rank,
            async move { Answer::Read(caught(async { store.read(&seat).await }).await) },
        );
    }

    pub(super) fn swap(&mut self, election: ElectionId, expected: Option<Version>, mut record: Record) {
        let (store, seat) = (self.store.clone(), self.seat(election));
        let entry = self.entries.get_mut(&election).expect("it is being stepped");
        if record.holder.is_some() {
            entry.since_ms = wall_ms();
            record.since_ms = entry.since_ms;
        }
        // A holder may rewrite its record by a swap. Releases go first: a waiting candidate can take the seat at once.
        let keeps = record.holder.is_none() || entry.shared.state().term.is_some();
        let rank = if keeps { Rank::Keeps } else { Rank::Follows };
        self.call_store(election, false, rank, async move {
            Answer::Written(caught(async { store.swap(&seat, expected.as_ref(), &record).await }).await)
        });
    }

    pub(super) fn renew(&mut self, election: ElectionId, held: Version, mut record: Record) {
        let (store, seat) = (self.store.clone(), self.seat(election));
        record.since_ms = self.entries[&election].since_ms;
        self.call_store(election, false, Rank::Keeps, async move {
            Answer::Written(caught(async { store.renew(&seat, &held, &record).await }).await)
        });
    }

    pub(super) fn watch(&mut self, election: ElectionId, seat: Option<Seat>, requests: bool) {
        let (store, name) = (self.store.clone(), self.seat(election));
        let seen = Seen { seat, requests };
        let watch = self.call(election, async move {
            let news = AssertUnwindSafe(async { store.changed(&name, &seen).await }).catch_unwind().await;
            Answer::Changed(news.unwrap_or(Change::Look))
        });
        self.entries.get_mut(&election).expect("it is being stepped").watch = Some(watch);
    }

    pub(super) fn look(&self, seat: SeatName, reply: oneshot::Sender<Result<Reading, Error>>) {
        let store = self.store.clone();
        self.one_off(reply, async move { store.read(&seat).await });
    }

    pub(super) fn forget(&self, seat: SeatName, reply: oneshot::Sender<Result<(), Error>>) {
        let store = self.store.clone();
        self.one_off(reply, async move { store.forget(&seat).await });
    }

    /// A call that belongs to no election, under a time-out for people who wait.
    pub(super) fn one_off<T: Send + 'static>(
        &self,
        reply: oneshot::Sender<Result<T, Error>>,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        let call = self.before(
            self.clock.now() + ONE_OFF,
            "the store did not answer in time: see that it is up, and can be reached",
            call,
        );
        tokio::spawn(async move {
            let _ = reply.send(call.await.map_err(|error| Error::Store(error.into())));
        });
    }

    /// Has a future polled until it, or what this returns, is dropped.
    pub(super) fn call(
        &mut self,
        election: ElectionId,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) -> Underway {
        let number = self.next_number();
        let abort = self.poll(Box::pin(answer.map(move |answer| (election, number, answer))));
        Underway { number, reads: false, time_out: None, running: Some((abort, None)) }
    }

    fn poll(&mut self, answer: BoxFuture<'static, (ElectionId, u64, Answer)>) -> AbortHandle {
        let (abort, registration) = AbortHandle::new_pair();
        self.pending.push(Abortable::new(answer, registration));
        abort
    }

    /// Calls the store, as soon as it is this call's turn.
    fn call_store(
        &mut self,
        election: ElectionId,
        reads: bool,
        rank: Rank,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) {
        let number = self.next_number();
        let call = Underway { number, reads, time_out: None, running: None };
        self.entries.get_mut(&election).expect("it is being stepped").call = Some(call);
        let answer = Box::pin(answer.map(move |answer| (election, number, answer)));
        self.lanes.wait(rank, Waiting { election, number, answer });
    }

    /// Makes the calls whose turn it is. Their time runs from now on.
    pub(super) fn call_waiting(&mut self) {
        while let Some((Waiting { election, number, answer }, lane)) = self.lanes.next() {
            let Some(entry) = self.entries.get(&election) else { continue };
            if entry.call.as_ref().is_none_or(|call| call.number != number) {
                continue;
            }
            let attempt = entry.machine.rules().timing.attempt();
            let time_out = self.at(self.clock.now() + attempt, Due::TimeOut((election, number)));
            let abort = self.poll(answer);
            let call = self.entries.get_mut(&election).and_then(|entry| entry.call.as_mut()).expect("looked up above");
            (call.time_out, call.running) = (Some(time_out), Some((abort, Some(lane))));
        }
    }

    /// A call beside the election's one, under a time-out of its own.
    pub(super) fn in_time<T: Send + 'static>(
        &self,
        election: ElectionId,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        let until = self.clock.now() + self.entries[&election].machine.rules().timing.attempt();
        self.before(until, "the board did not answer in time", call)
    }

    pub(super) fn before<T: Send + 'static>(
        &self,
        until: Moment,
        late: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        let clock = self.clock.clone();
        async move {
            let (call, over) = (std::pin::pin!(caught(call)), std::pin::pin!(clock.sleep_until(until)));
            match select(call, over).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => Err(StoreError::unknown(late)),
            }
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn seat(&self, election: ElectionId) -> SeatName {
        self.entries[&election].shared.name.clone()
    }
}

/// A store that panics has failed in an unknown way, and takes nobody with it. To be given a future
/// that makes the call itself: a store may panic before it has returned one.
async fn caught<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => Err(panicked(&*panic)),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> StoreError {
    StoreError::unknown(format!("the store panicked, which is a bug in it: {}", panic_message(panic)))
}

/// Logs that a call to the board of a seat has failed.
pub(super) fn log_failed(seat: SeatName, error: StoreError, what: &'static str) {
    log::emit(Level::DEBUG, move || debug!(election = %seat, %error, "{what}"));
}

/// Resolves when the process is asked to end.
pub(super) fn spawn_signal_listener(reply: oneshot::Sender<()>) {
    tokio::spawn(async move {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
                (Ok(mut terminate), Ok(mut interrupt)) => {
                    select(std::pin::pin!(terminate.recv()), std::pin::pin!(interrupt.recv())).await;
                }
                _ => log::emit(Level::ERROR, || error!("signals cannot be listened to: stop the elections by hand")),
            }
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
        }
        let _ = reply.send(());
    });
}

pub(super) fn wall_ms() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis().try_into().ok()
}
