//! Calls to the store, each for one or more elections.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, Either, select};
use tenure_protocol::{Batch, Candidate, Group, Lane, Moment, Reading, Record, RosterEntry, Swap, Token, Version};
use tokio::sync::oneshot;
use tracing::{Level, debug, error};

use super::misbehaviour::{Misbehaviour, Misbehaviours};
use super::notes::Noted;
use super::{Driver, Due, ElectionId, NOBODY, Timer};
use crate::handlers::panic_message;
use crate::store::BoxFuture;
use crate::store::answers::UNANSWERED;
use crate::{Answers, Call, DynStore, Error, Expect, Note, SeatName, StoreError, Write, log};

/// How long a caller waits for the store in calls that belong to no election.
pub(super) const ONE_OFF: Duration = Duration::from_secs(10);

/// The result of a pending future.
pub(super) enum Answer {
    /// A call to the store has ended.
    Called(u64, Result<(), StoreError>),
    /// The watch of the store has ended.
    WatchEnded(StoreError),
    Requests(Vec<Note>),
    Roster(Vec<RosterEntry>),
    /// The candidate to hand over to, and the term that should end.
    Heir(Result<(Candidate, Token), Error>, oneshot::Sender<Result<(), Error>>),
    StopAsked,
    /// A call about notes has ended.
    Noted(Noted),
}

pub(super) type Pending = Abortable<BoxFuture<'static, (ElectionId, u64, Answer)>>;

/// A pending future. Dropping this cancels it.
pub(super) struct Underway {
    pub(super) number: u64,
    abort: AbortHandle,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// A read or write that an election has asked for.
pub(super) struct Asked {
    pub(super) number: u64,
    what: What,
    sent: Option<Sent>,
}

enum What {
    Read,
    Write(Box<(Expect, Record)>),
}

/// The place of an ask in a call that was sent.
#[derive(Clone, Copy)]
struct Sent {
    call: u64,
    place: usize,
    time_out: Timer,
}

impl What {
    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write(write) => {
                let Record { metadata, unknown, .. } = &write.1;
                let of = |map: &BTreeMap<String, String>| {
                    map.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
                };
                512 + of(metadata) + of(unknown)
            }
        }
    }
}

impl Asked {
    pub(super) fn reads(&self) -> bool {
        matches!(self.what, What::Read)
    }
}

/// A call to the store that is in flight.
pub(super) struct Calling {
    /// The asks by their places in the call; `None` if an ask was answered or its election no longer waits.
    asks: Vec<Option<Ask>>,
    /// The number of asks without an answer.
    left: usize,
    _future: Underway,
}

/// An election, and the number of its ask.
pub(super) type Ask = (ElectionId, u64);

/// The store's answer for the seat at this place of a call.
pub(super) struct Answered {
    pub(super) call: u64,
    pub(super) place: usize,
    pub(super) answer: SeatAnswer,
}

pub(super) enum SeatAnswer {
    Read(Result<Reading, StoreError>),
    Written(Result<Swap, StoreError>),
}

impl Driver {
    pub(super) fn read(&mut self, election: ElectionId) {
        let entry = &self.entries[&election];
        let lane = if entry.shared.state().term.is_some() {
            Lane::Keep
        } else if entry.unsettled {
            Lane::Settle
        } else {
            Lane::Background
        };
        self.ask_store(election, lane, What::Read);
    }

    pub(super) fn swap(&mut self, election: ElectionId, expected: Option<Version>, mut record: Record) {
        let entry = self.entries.get_mut(&election).expect("it is being stepped");
        if record.holder.is_some() {
            // A leader that rewrites its record continues its term.
            if entry.shared.state().term.is_none() {
                entry.since_ms = wall_ms();
            }
            record.since_ms = entry.since_ms;
        }
        // A holder can rewrite its record by a swap. Releases go first: a waiting candidate can take the seat at once.
        let keeps = record.holder.is_none() || entry.shared.state().term.is_some();
        let absent = || Expect::Absent(entry.machine.identity().cloned());
        let expect = expected.map_or_else(absent, Expect::Version);
        self.ask_to_write(election, if keeps { Lane::Keep } else { Lane::Background }, expect, record);
    }

    pub(super) fn renew(&mut self, election: ElectionId, held: Version, mut record: Record) {
        record.since_ms = self.entries[&election].since_ms;
        self.ask_to_write(election, Lane::Keep, Expect::Held(held), record);
    }

    fn ask_to_write(&mut self, election: ElectionId, lane: Lane, expect: Expect, record: Record) {
        self.entries.get_mut(&election).expect("it is being stepped").trace_write(&record);
        self.ask_store(election, lane, What::Write(Box::new((expect, record))));
    }

    pub(super) fn look(&self, seat: SeatName, reply: oneshot::Sender<Result<Reading, Error>>) {
        let store = self.store.clone();
        self.one_off(reply, async move { read_one(&*store, seat).await });
    }

    pub(super) fn forget(&self, seat: SeatName, reply: oneshot::Sender<Result<(), Error>>) {
        let store = self.store.clone();
        self.one_off(reply, async move { store.forget(&seat).await });
    }

    /// Makes a call that belongs to no election, with a time-out for people who wait.
    pub(super) fn one_off<T: Send + 'static>(
        &self,
        reply: oneshot::Sender<Result<T, Error>>,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        self.one_off_within(ONE_OFF, reply, call);
    }

    /// Makes a call that belongs to no election, with this time-out.
    pub(super) fn one_off_within<T: Send + 'static>(
        &self,
        within: Duration,
        reply: oneshot::Sender<Result<T, Error>>,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) {
        let call = self.before(
            self.clock.now() + within,
            "the store did not answer in time; check that it is running and reachable",
            call,
        );
        tokio::spawn(async move {
            let _ = reply.send(call.await.map_err(|error| Error::Store(error.into())));
        });
    }

    /// Polls a future on the engine's thread until it completes or the returned guard is dropped.
    pub(super) fn call(
        &mut self,
        election: ElectionId,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) -> Underway {
        let number = self.next_number();
        let abort = self.poll(Box::pin(answer.map(move |answer| (election, number, answer))));
        Underway { number, abort }
    }

    fn poll(&mut self, answer: BoxFuture<'static, (ElectionId, u64, Answer)>) -> AbortHandle {
        let (abort, registration) = AbortHandle::new_pair();
        self.pending.push(Abortable::new(answer, registration));
        abort
    }

    /// Queues a read or write of an election. `Admission` decides when its call leaves.
    fn ask_store(&mut self, election: ElectionId, lane: Lane, what: What) {
        let number = self.next_number();
        let entry = self.entries.get_mut(&election).expect("it is being stepped");
        let timing = &entry.machine.rules().timing;
        let reads = matches!(what, What::Read);
        let (lease, within, shard) = (timing.lease(), timing.call_timeout(), self.store.shard(&entry.shared.name));
        let bytes = entry.shared.name.as_str().len() + what.bytes();
        entry.call = Some(Asked { number, what, sent: None });
        self.admission.ask(Group { lane, reads, shard, lease, within }, (election, number), bytes);
    }

    /// Makes the calls that `Admission` admits. Their time-outs start now.
    pub(super) fn call_waiting(&mut self) {
        loop {
            let entries = &self.entries;
            let waits = |(election, number): &Ask| {
                let asked = entries.get(election).and_then(|entry| entry.call.as_ref());
                asked.is_some_and(|asked| asked.number == *number)
            };
            let Some(batch) = self.admission.next(waits) else { return };
            self.call_store(batch);
        }
    }

    fn call_store(&mut self, Batch { call: number, group, asks }: Batch<Ask>) {
        let (mut seats, mut writes) = (Vec::new(), Vec::new());
        for (place, (election, ask)) in asks.iter().enumerate() {
            let sent = self.entries.get(election).and_then(|entry| entry.call.as_ref()).and_then(|asked| asked.sent);
            // The parts of a split call keep the time-out of the whole call.
            let time_out = match sent {
                Some(sent) => sent.time_out,
                None => self.at(self.clock.now() + group.within, Due::TimeOut((*election, *ask))),
            };
            let entry = self.entries.get_mut(election).expect("it waits for this");
            let seat = entry.shared.name.clone();
            let asked = entry.call.as_mut().expect("it waits for this");
            asked.sent = Some(Sent { call: number, place, time_out });
            match &asked.what {
                What::Read => {
                    self.subscriptions.read_sent(*election);
                    seats.push(seat);
                }
                What::Write(write) => {
                    let (expect, record) = (**write).clone();
                    self.subscriptions.write_sent(*election, record.nonce, record.names());
                    writes.push(Write { seat, expect, record });
                }
            }
        }
        let (store, call) = (self.store.clone(), Call { lease: group.lease, within: group.within });
        let answered = self.answered.clone();
        let put = move |place, answer| drop(answered.send(Answered { call: number, place, answer }));
        let (count, misbehaviours) = (asks.len(), self.misbehaviours.clone());
        let panics = misbehaviours.clone();
        let too_much = move || misbehaviours.log(Misbehaviour::AnsweredTooMuch);
        let future = self.call(NOBODY, async move {
            let ended = match group.reads {
                true => {
                    let to =
                        Answers::each_once(count, too_much, move |place, answer| put(place, SeatAnswer::Read(answer)));
                    caught(&panics, async { store.read(&call, &seats, &to).await }).await
                }
                false => {
                    let to = Answers::each_once(count, too_much, move |place, answer| {
                        put(place, SeatAnswer::Written(answer))
                    });
                    caught(&panics, async { store.write(&call, &writes, &to).await }).await
                }
            };
            Answer::Called(number, ended)
        });
        let left = asks.len();
        let asks = asks.into_iter().map(Some).collect();
        self.calling.insert(number, Calling { asks, left, _future: future });
    }

    /// Returns the ask at this place of a call; `None` if it was answered before, or has timed out.
    pub(super) fn ask_at(&self, call: u64, place: usize) -> Option<Ask> {
        *self.calling.get(&call)?.asks.get(place)?
    }

    /// Ends a call. Returns the asks without an answer, and the error for them.
    pub(super) fn on_called(&mut self, call: u64, ended: Result<(), StoreError>) -> (Vec<Ask>, StoreError) {
        let error = ended.err();
        let is_caused_by_one = error.as_ref().is_some_and(StoreError::is_caused_by_one);
        let is_complete = error.is_none();
        let error = error.unwrap_or_else(|| StoreError::unknown(UNANSWERED));
        let Some(calling) = self.calling.remove(&call) else { return (Vec::new(), error) };
        let asks: Vec<_> = calling.asks.into_iter().flatten().collect();
        if is_complete && !asks.is_empty() {
            self.misbehaviours.log(Misbehaviour::LeftUnanswered);
        }
        if is_caused_by_one {
            (self.admission.take_apart(call, asks), error)
        } else {
            self.admission.ended(call);
            (asks, error)
        }
    }

    /// Ends the pending ask of an election. Returns whether it was a read.
    pub(super) fn end_ask(&mut self, election: ElectionId) -> Option<bool> {
        let asked = self.entries.get_mut(&election)?.call.take()?;
        self.cancel_ask(&asked);
        Some(asked.reads())
    }

    /// Removes an ask from its call. The removal of the last ask cancels the call.
    pub(super) fn cancel_ask(&mut self, asked: &Asked) {
        let Some(Sent { call, place, time_out }) = asked.sent else { return };
        self.due.remove(&time_out);
        let Some(calling) = self.calling.get_mut(&call) else { return };
        if calling.asks[place].take_if(|(_, number)| *number == asked.number).is_some() {
            calling.left -= 1;
        }
        if calling.left == 0 {
            self.calling.remove(&call);
            self.admission.ended(call);
        }
    }

    /// Adds the election's `call_timeout` to a call beside its pending ask.
    pub(super) fn in_time<T: Send + 'static>(
        &self,
        election: ElectionId,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        let until = self.clock.now() + self.entries[&election].machine.rules().timing.call_timeout();
        self.before(until, "the store did not answer in time", call)
    }

    pub(super) fn before<T: Send + 'static>(
        &self,
        until: Moment,
        late: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        let (clock, misbehaviours) = (self.clock.clone(), self.misbehaviours.clone());
        async move {
            let (call, over) = (std::pin::pin!(caught(&misbehaviours, call)), std::pin::pin!(clock.sleep_until(until)));
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

/// Turns a panic of a store into an error with an unknown outcome. The future must make the call itself, because a
/// store can panic before it returns a future.
async fn caught<T>(
    misbehaviours: &Misbehaviours,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => Err(panicked(misbehaviours, &*panic)),
    }
}

pub(super) fn panicked(misbehaviours: &Misbehaviours, panic: &(dyn Any + Send)) -> StoreError {
    misbehaviours.log(Misbehaviour::Panicked);
    StoreError::unknown(format!("the store panicked, which is a bug in the store: {}", panic_message(panic)))
}

/// Reads one seat, for a call that belongs to no election.
pub(super) async fn read_one(store: &dyn DynStore, seat: SeatName) -> Result<Reading, StoreError> {
    let call = Call { lease: ONE_OFF, within: ONE_OFF };
    Answers::one(async |to| store.read(&call, &[seat], &to).await).await
}

/// Logs a failed call about the notes of a seat.
pub(super) fn log_failed(seat: SeatName, error: StoreError, what: &'static str) {
    log::emit(Level::DEBUG, move || debug!(election = %seat, %error, "{what}"));
}

/// Starts a task that replies when the process receives SIGTERM or SIGINT.
pub(super) fn spawn_signal_listener(reply: oneshot::Sender<()>) {
    tokio::spawn(async move {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
                (Ok(mut terminate), Ok(mut interrupt)) => {
                    select(std::pin::pin!(terminate.recv()), std::pin::pin!(interrupt.recv())).await;
                }
                _ => log::emit(Level::ERROR, || {
                    error!("cannot listen for signals; stop the elections with `Elections::stop`")
                }),
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
