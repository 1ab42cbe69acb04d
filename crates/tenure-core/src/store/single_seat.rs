//! An adapter that calls any store about one seat at a time, for tests of stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_protocol::{
    Change, DataIdentity, Notification, Push, Reading, Record, Release, Seat, SessionId, Subscriptions, Swap, Version,
    Watching,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::watch::PendingNews;
use super::{
    Answers, Board, Call, DynNotes, DynStore, Expect, Interest, Promises, SeatInterest, SeatStore, Seen, Store, Write,
};
use crate::{Clock, Lifeline, SeatName, StoreError};

/// Calls any store about one seat at a time, for tests of stores.
///
/// It watches and reads the seat as the engine does. It must be used within a tokio runtime.
pub struct SingleSeat {
    store: Arc<dyn DynStore>,
    promises: Promises,
    interest: Interest,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    subscriptions: Subscriptions<SeatName, u64>,
    notifications: BTreeMap<u64, Vec<Notification>>,
    /// The last release of each seat that the store pushed.
    releases: BTreeMap<SeatName, Arc<Release>>,
    /// The identity of the data in which each seat was last absent.
    absent: BTreeMap<SeatName, DataIdentity>,
    /// Sessions that have ended.
    ended: BTreeSet<SessionId>,
    /// Sessions with which this adapter has won seats.
    own: BTreeSet<SessionId>,
    next: u64,
    watch: Option<AbortHandle>,
}

impl SingleSeat {
    /// Creates an adapter for a store. Nothing is called yet.
    pub fn new(store: impl Store) -> Self {
        let store: Arc<dyn DynStore> = Arc::new(store);
        let promises = store.promises();
        Self { store, promises, interest: Interest::new(), shared: Arc::default() }
    }

    /// Returns the properties of a call without a short time-out: the caller decides when to give up.
    fn call(&self, lease: Duration) -> Call {
        Call { lease, within: lease }
    }

    /// Writes a seat on any condition, including those that [`SeatStore`] does not have.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn write(&self, seat: &SeatName, expect: Expect, record: &Record) -> Result<Swap, StoreError> {
        let (call, write) = (self.call(record.lease), Write { seat: seat.clone(), expect, record: record.clone() });
        let answer = Answers::one(async |to| self.store.write(&call, &[write], &to).await).await;
        if let Ok(Swap::Done { version, .. }) = &answer {
            self.shared.lock().own.extend(self.store.session_of(version));
        }
        answer
    }

    /// Runs `release`, which releases a seat that was seen like this, once the store listens. Returns the release that the
    /// store pushes, or `None` if it pushes only that the holder has changed. Also returns `None` if the store does not
    /// listen within a lease, and then the seat is not released.
    pub async fn release_pushed_by(
        &self,
        seat: &SeatName,
        seen: &Seat,
        release: impl Future<Output = ()>,
    ) -> Option<Arc<Release>> {
        self.start_to_watch();
        let waiting = Waiting::begin(self, seat, &Seen { seat: Some(seen.clone()), requests: false });
        let listening = async { while !waiting.wait(Duration::MAX).await.contains(&Notification::Listening(true)) {} };
        tokio::time::timeout(seen.record.lease, listening).await.ok()?;
        waiting.step(|subscriptions, number, notifications| {
            subscriptions.read_sent(number);
            subscriptions.read_answered(number);
            let watching = Watching { names: Some(seen.record.names()), ..Watching::default() };
            subscriptions.watch(number, watching, notifications);
        });
        release.await;
        while !waiting.wait(Duration::MAX).await.contains(&Notification::Holder) {}
        self.shared.lock().releases.remove(seat)
    }

    /// Starts to watch the store, as the engine does.
    fn start_to_watch(&self) {
        let mut state = self.shared.lock();
        if state.watch.is_some() || self.promises.push == Push::None {
            return;
        }
        let (store, interest, shared) = (self.store.clone(), self.interest.clone(), self.shared.clone());
        let watch = tokio::spawn(async move {
            let news = interest.news();
            let watch = async {
                loop {
                    interest.resend_all();
                    let _ended = store.watch(&interest, &news).await;
                    news.gap(super::Scope::All);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let hear = async {
                loop {
                    interest.arrived().await;
                    shared.take_in(interest.take_pending());
                }
            };
            tokio::join!(watch, hear)
        });
        state.watch = Some(watch.abort_handle());
    }

    /// Waits until a session has ended, for at most `longest`, and returns whether it has.
    async fn ended(&self, session: &SessionId, longest: Duration) -> bool {
        let ended = async {
            loop {
                let woken = self.shared.changed.notified();
                if self.shared.lock().ended.contains(session) {
                    return;
                }
                woken.await;
            }
        };
        tokio::time::timeout(longest, ended).await.is_ok()
    }

    /// Returns whether a reading differs from what the watcher has seen.
    async fn is_news(&self, seat: &SeatName, seen: &Seen, reading: &Reading) -> bool {
        let is_over = |seat: Option<&Seat>| {
            seat.is_some_and(|seat| seat.life == tenure_protocol::Life::Over && !seat.record.is_vacant())
        };
        if seen.differs_from(reading.seat.as_ref()) || is_over(seen.seat.as_ref()) != is_over(reading.seat.as_ref()) {
            return true;
        }
        match self.store.notes().filter(|_| seen.requests) {
            Some(notes) => notes.list_one(&Board::Requests(seat.clone())).await.is_ok_and(|notes| !notes.is_empty()),
            None => false,
        }
    }
}

impl Drop for SingleSeat {
    fn drop(&mut self) {
        if let Some(watch) = self.shared.lock().watch.take() {
            watch.abort();
        }
    }
}

impl std::fmt::Debug for SingleSeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleSeat").field("store", &self.promises.store).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn take_in(&self, pending: PendingNews) {
        let mut state = self.lock();
        state.releases.extend(pending.releases());
        state.ended.extend(pending.sessions.iter().cloned());
        let mut notifications = Vec::new();
        pending.deliver(&mut state.subscriptions, &mut notifications);
        for (who, what) in notifications {
            state.notifications.entry(who).or_default().push(what);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// A call that waits for a change. Dropping it unsubscribes.
struct Waiting<'a> {
    store: &'a SingleSeat,
    number: u64,
}

impl<'a> Waiting<'a> {
    fn begin(store: &'a SingleSeat, seat: &SeatName, seen: &Seen) -> Self {
        let lease = seen.seat.as_ref().map_or(Duration::from_secs(1), |seat| seat.record.lease);
        let mut state = store.shared.lock();
        state.next += 1;
        let number = state.next;
        let mut notifications = Vec::new();
        state.subscriptions.begin(number, seat.clone(), &mut notifications);
        state.notifications.insert(number, notifications.into_iter().map(|(_, notification)| notification).collect());
        drop(state);
        store.interest.want(seat.clone(), SeatInterest { lease, seen: Some(seen.clone()) });
        Self { store, number }
    }

    /// Returns the notifications since the last call.
    fn take(&self) -> Vec<Notification> {
        self.store.shared.lock().notifications.get_mut(&self.number).map(std::mem::take).unwrap_or_default()
    }

    /// Waits for notifications, for at most `longest`, and returns them.
    async fn wait(&self, longest: Duration) -> Vec<Notification> {
        let wait = async {
            loop {
                let woken = self.store.shared.changed.notified();
                let notifications = self.take();
                if !notifications.is_empty() {
                    return notifications;
                }
                woken.await;
            }
        };
        tokio::time::timeout(longest, wait).await.unwrap_or_default()
    }

    fn step(&self, step: impl FnOnce(&mut Subscriptions<SeatName, u64>, u64, &mut Vec<(u64, Notification)>)) {
        let mut state = self.store.shared.lock();
        let mut notifications = Vec::new();
        step(&mut state.subscriptions, self.number, &mut notifications);
        for (who, what) in notifications {
            state.notifications.entry(who).or_default().push(what);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.store.shared.lock();
        state.notifications.remove(&self.number);
        let gone = state.subscriptions.end(self.number);
        drop(state);
        if let Some(seat) = gone {
            self.store.interest.drop_seat(&seat);
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl SeatStore for SingleSeat {
    fn promises(&self) -> Promises {
        self.promises.clone()
    }

    fn attach(&self, clock: &Clock) {
        self.store.attach(clock, &self.interest.news());
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let call = self.call(Duration::from_secs(10));
        let reading = Answers::one(async |to| self.store.read(&call, std::slice::from_ref(seat), &to).await).await?;
        if let (None, Some(identity)) = (&reading.seat, &reading.identity) {
            self.shared.lock().absent.insert(seat.clone(), identity.clone());
        }
        Ok(reading)
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let absent = || Expect::Absent(self.shared.lock().absent.get(seat).cloned());
        let expect = expected.map_or_else(absent, |version| Expect::Version(version.clone()));
        self.write(seat, expect, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.write(seat, Expect::Held(held.clone()), record).await
    }

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        self.write(seat, Expect::HolderDead(held.clone()), vacant).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.start_to_watch();
        let waiting = Waiting::begin(self, seat, seen);
        let session = seen.seat.as_ref().and_then(|seat| self.store.session_of(&seat.version));
        let own = session.as_ref().is_some_and(|session| self.shared.lock().own.contains(session));
        let poll = seen.seat.as_ref().map_or(Duration::from_secs(1), |seat| seat.record.lease) / 3;
        let mut hears = false;
        loop {
            for notification in waiting.take() {
                match notification {
                    Notification::Listening(now) => hears = now,
                    Notification::SessionOver => return Change::SessionOver,
                    Notification::Holder | Notification::HolderOver | Notification::Request => {}
                }
            }
            if own && session.as_ref().is_some_and(|session| self.shared.lock().ended.contains(session)) {
                return Change::SessionOver;
            }
            waiting.step(|subscriptions, number, _| {
                subscriptions.read_sent(number);
                // `is_news` reads the board right after the seat.
                subscriptions.board_sent(number);
            });
            if let Ok(reading) = SeatStore::read(self, seat).await {
                waiting.step(|subscriptions, number, _| subscriptions.read_answered(number));
                if self.is_news(seat, seen, &reading).await {
                    // A read can be faster than the notification that our own session has ended, but does not replace
                    // it.
                    let is_over = reading.seat.as_ref().is_some_and(|seat| seat.life == tenure_protocol::Life::Over);
                    return match session.as_ref().filter(|_| own && is_over) {
                        Some(session) if self.ended(session, poll).await => Change::SessionOver,
                        _ => Change::Look,
                    };
                }
                let record = reading.seat.as_ref().map(|seat| &seat.record);
                let watching = Watching {
                    names: record.map(Record::names),
                    nonce: record.map(|record| record.nonce),
                    requests: seen.requests,
                    session: session.clone(),
                    own,
                };
                waiting
                    .step(|subscriptions, number, notifications| subscriptions.watch(number, watching, notifications));
            }
            let longest = if hears { Duration::MAX } else { poll };
            let notifications = waiting.wait(longest).await;
            waiting.step(|_, number, again| {
                again.extend(notifications.into_iter().map(|notification| (number, notification)))
            });
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.store.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.store.list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        self.store.lifeline(seat)
    }
}
