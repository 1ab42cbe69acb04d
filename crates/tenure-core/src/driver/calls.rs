//! Calls to the store, on behalf of one election each.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, Either, select};
use serde::{Deserialize, Serialize};
use tenure_protocol::{Change, Input, Leader, Moment, Reading, Record, Request, Seat, Swap, Token, Version};
use tokio::sync::oneshot;

use super::lanes::{Lane, Waiting};
use super::{Driver, Due, ElectionId, Timer};
use crate::handlers::panic_message;
use crate::store::BoxFuture;
use crate::{Error, Note, NoteKind, SeatName, Seen, StoreError};

/// How long somebody who asks once waits for the store.
const ONE_OFF: Duration = Duration::from_secs(10);

/// What a pending future comes to.
pub(super) enum Answer {
    Read(Result<Reading, StoreError>),
    Written(Result<Swap, StoreError>),
    Changed(Change),
    Requests(Vec<Request>),
    StopAsked,
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
        self.call_store(
            election,
            true,
            false,
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
        // Who gives up a seat lets others have it.
        self.call_store(election, false, record.holder.is_none(), async move {
            Answer::Written(caught(async { store.swap(&seat, expected.as_ref(), &record).await }).await)
        });
    }

    pub(super) fn renew(&mut self, election: ElectionId, held: Version, mut record: Record) {
        let (store, seat) = (self.store.clone(), self.seat(election));
        record.since_ms = self.entries[&election].since_ms;
        self.call_store(election, false, true, async move {
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

    /// Reads the requests on the board and takes them off it: they were meant for us.
    pub(super) fn read_board(&mut self, election: ElectionId, inputs: &mut VecDeque<Input>) {
        if self.store.board().is_none() {
            return inputs.push_back(Input::Requests(Vec::new()));
        }
        let (store, seat) = (self.store.clone(), self.seat(election));
        let read = self.in_time(election, async move {
            let Some(board) = store.board() else { return Ok(Vec::new()) };
            let notes = board.list(&seat, NoteKind::Request).await?;
            let requests = notes.iter().filter_map(|note| RequestForm::parse(&note.value)).collect();
            for note in notes {
                // What stays is read again, and does no harm: a request is for one term alone.
                if let Err(error) = board.remove(&seat, NoteKind::Request, &note.key).await {
                    tracing::debug!(%seat, %error, "a request could not be taken off the board");
                }
            }
            Ok(requests)
        });
        let name = self.seat(election);
        let board = self.call(election, async move {
            Answer::Requests(read.await.unwrap_or_else(|error| {
                tracing::debug!(election = %name, %error, "the board could not be read");
                Vec::new()
            }))
        });
        self.entries.get_mut(&election).expect("it is being stepped").board = Some(board);
    }

    pub(super) fn request_step_down(
        &mut self,
        election: ElectionId,
        reply: oneshot::Sender<Result<Option<Leader>, Error>>,
    ) {
        let Some(entry) = self.entries.get(&election) else { return };
        if self.store.board().is_none() {
            let problem = "has no board: ask the leader in another way".to_owned();
            return drop(reply.send(Err(Error::Unsupported { store: self.store.promises().store, problem })));
        }
        let Some(leader) = entry.shared.state().leader.clone() else { return drop(reply.send(Ok(None))) };
        let form = RequestForm::StepDown { token: leader.token.get(), by: entry.shared.candidate.id.to_string() };
        let note = Note {
            kind: NoteKind::Request,
            key: format!("{:016x}", rand::random::<u64>()),
            value: serde_json::to_string(&form).expect("strings and numbers always have a JSON form"),
            lifetime: entry.rules.timing.lease(),
        };
        let (store, seat) = (self.store.clone(), self.seat(election));
        let put = self.in_time(election, async move {
            match store.board() {
                Some(board) => board.put(&seat, &note).await,
                None => Ok(()),
            }
        });
        tokio::spawn(async move {
            let answer = put.await.map(|()| Some(leader)).map_err(|error| Error::Store(error.into()));
            let _ = reply.send(answer);
        });
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
    fn one_off<T: Send + 'static>(
        &self,
        reply: oneshot::Sender<Result<T, Error>>,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        let call = self.before(self.clock.now() + ONE_OFF, "the store did not answer in time", call);
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
        goes_first: bool,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) {
        let number = self.next_number();
        let call = Underway { number, reads, time_out: None, running: None };
        self.entries.get_mut(&election).expect("it is being stepped").call = Some(call);
        let answer = Box::pin(answer.map(move |answer| (election, number, answer)));
        self.lanes.wait(goes_first, Waiting { election, number, answer });
    }

    /// Makes the calls whose turn it is. Their time runs from now on.
    pub(super) fn call_waiting(&mut self) {
        while let Some((Waiting { election, number, answer }, lane)) = self.lanes.next() {
            let Some(entry) = self.entries.get(&election) else { continue };
            if entry.call.as_ref().is_none_or(|call| call.number != number) {
                continue;
            }
            let attempt = entry.rules.timing.attempt();
            let time_out = self.at(self.clock.now() + attempt, Due::TimeOut((election, number)));
            let abort = self.poll(answer);
            let call = self.entries.get_mut(&election).and_then(|entry| entry.call.as_mut()).expect("looked up above");
            (call.time_out, call.running) = (Some(time_out), Some((abort, Some(lane))));
        }
    }

    /// A call beside the election's one, under a time-out of its own.
    fn in_time<T: Send + 'static>(
        &self,
        election: ElectionId,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        let until = self.clock.now() + self.entries[&election].rules.timing.attempt();
        self.before(until, "the board did not answer in time", call)
    }

    fn before<T: Send + 'static>(
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

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn seat(&self, election: ElectionId) -> SeatName {
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
                _ => tracing::error!("signals cannot be listened to: stop the elections by hand"),
            }
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
        }
        let _ = reply.send(());
    });
}

/// A request as it stands on the board.
#[derive(Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
enum RequestForm {
    StepDown { token: u64, by: String },
}

impl RequestForm {
    /// `None` if it is not known to this version.
    fn parse(text: &str) -> Option<Request> {
        let Self::StepDown { token, .. } = serde_json::from_str(text).ok()?;
        Some(Request::StepDown { token: Token::new(token) })
    }
}

fn wall_ms() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis().try_into().ok()
}
