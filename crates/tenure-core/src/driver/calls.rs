//! Calls to the store, on behalf of one election each.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, Either, select};
use tenure_protocol::{Batch, Candidate, Group, Lane, Moment, Reading, Record, Standing, Swap, Token, Version};
use tokio::sync::oneshot;
use tracing::{Level, debug, error};

use super::misbehaviour::{Misbehaviour, Misbehaviours};
use super::notes::Noted;
use super::{Driver, Due, ElectionId, NOBODY, Timer};
use crate::handlers::panic_message;
use crate::store::BoxFuture;
use crate::store::answers::UNANSWERED;
use crate::{Answers, Call, DynStore, Error, Expect, Note, SeatName, StoreError, Write, log};

/// How long somebody who asks once waits for the store.
const ONE_OFF: Duration = Duration::from_secs(10);

/// What a pending future comes to.
pub(super) enum Answer {
    /// A call to the store has come to its end.
    Called(u64, Result<(), StoreError>),
    /// The store is not watched any more.
    WatchEnded(StoreError),
    Requests(Vec<Note>),
    Roster(Vec<Standing>),
    /// Whom to hand over to, and the term that is to end.
    Heir(Result<(Candidate, Token), Error>, oneshot::Sender<Result<(), Error>>),
    StopAsked,
    /// A call about notes has come to its end.
    Noted(Noted),
}

pub(super) type Pending = Abortable<BoxFuture<'static, (ElectionId, u64, Answer)>>;

/// A future among the pending ones. Dropped with this.
pub(super) struct Underway {
    pub(super) number: u64,
    abort: AbortHandle,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// What an election has asked of the store.
pub(super) struct Asked {
    pub(super) number: u64,
    what: What,
    sent: Option<Sent>,
}

enum What {
    Read,
    Write(Box<(Expect, Record)>),
}

/// Where an ask is, once it was sent.
#[derive(Clone, Copy)]
struct Sent {
    call: u64,
    place: usize,
    time_out: Timer,
}

impl What {
    /// About how long it is.
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

/// A call to the store that is under way.
pub(super) struct Calling {
    /// Who is to be answered, by their places in the call; `None` once they were, or wait no longer.
    asks: Vec<Option<Ask>>,
    /// How many are to be answered yet.
    left: usize,
    _future: Underway,
}

/// An election, and the number that it knows its ask by.
pub(super) type Ask = (ElectionId, u64);

/// What a store has answered, to the seat at this place in a call.
pub(super) struct Answered {
    pub(super) call: u64,
    pub(super) place: usize,
    pub(super) answer: OfSeat,
}

pub(super) enum OfSeat {
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
            entry.since_ms = wall_ms();
            record.since_ms = entry.since_ms;
        }
        // A holder may rewrite its record by a swap. Releases go first: a waiting candidate can take the seat at once.
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
        Underway { number, abort }
    }

    fn poll(&mut self, answer: BoxFuture<'static, (ElectionId, u64, Answer)>) -> AbortHandle {
        let (abort, registration) = AbortHandle::new_pair();
        self.pending.push(Abortable::new(answer, registration));
        abort
    }

    /// Asks something of the store, as soon as it is this election's turn.
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

    /// Makes the calls whose turn it is. Their time runs from now on.
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
            // When a call was taken apart, its pieces have no more time than it had.
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
                    writes.push(Write { seat, expect, record });
                }
            }
        }
        let (store, call) = (self.store.clone(), Call { lease: group.lease, within: group.within });
        let answered = self.answered.clone();
        let put = move |place, answer| drop(answered.send(Answered { call: number, place, answer }));
        let (count, odd) = (asks.len(), self.misbehaviours.clone());
        let panics = odd.clone();
        let too_much = move || odd.log(Misbehaviour::AnsweredTooMuch);
        let future = self.call(NOBODY, async move {
            let ended = match group.reads {
                true => {
                    let to = Answers::each_once(count, too_much, move |place, answer| put(place, OfSeat::Read(answer)));
                    caught(&panics, async { store.read(&call, &seats, &to).await }).await
                }
                false => {
                    let to =
                        Answers::each_once(count, too_much, move |place, answer| put(place, OfSeat::Written(answer)));
                    caught(&panics, async { store.write(&call, &writes, &to).await }).await
                }
            };
            Answer::Called(number, ended)
        });
        let left = asks.len();
        let asks = asks.into_iter().map(Some).collect();
        self.calling.insert(number, Calling { asks, left, _future: future });
    }

    /// Who is answered by this: nobody, if it was answered before, or has taken too long.
    pub(super) fn who_asked(&self, call: u64, place: usize) -> Option<Ask> {
        *self.calling.get(&call)?.asks.get(place)?
    }

    /// A call has come to its end. Returns whom it has not answered, and what to tell them.
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

    /// An election waits no longer for what it has asked. Returns whether that was a read.
    pub(super) fn end_ask(&mut self, election: ElectionId) -> Option<bool> {
        let asked = self.entries.get_mut(&election)?.call.take()?;
        self.let_go_of(&asked);
        Some(asked.reads())
    }

    /// Gives up a place in a call; the last one to do so ends it.
    pub(super) fn let_go_of(&mut self, asked: &Asked) {
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

    /// A call beside the election's one, under a time-out of its own.
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
        let (clock, odd) = (self.clock.clone(), self.misbehaviours.clone());
        async move {
            let (call, over) = (std::pin::pin!(caught(&odd, call)), std::pin::pin!(clock.sleep_until(until)));
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
async fn caught<T>(odd: &Misbehaviours, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => Err(panicked(odd, &*panic)),
    }
}

pub(super) fn panicked(odd: &Misbehaviours, panic: &(dyn Any + Send)) -> StoreError {
    odd.log(Misbehaviour::Panicked);
    StoreError::unknown(format!("the store panicked, which is a bug in it: {}", panic_message(panic)))
}

/// Reads one seat, for somebody who asks once.
pub(super) async fn read_one(store: &dyn DynStore, seat: SeatName) -> Result<Reading, StoreError> {
    let call = Call { lease: ONE_OFF, within: ONE_OFF };
    Answers::one(async |to| store.read(&call, &[seat], &to).await).await
}

/// Logs that a call about the notes of a seat has failed.
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
