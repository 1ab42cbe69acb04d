//! What the engine wants to know of seats, and what the store tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_protocol::{Notification, PushDetail, SessionId, Subscriptions};
use tokio::sync::Notify;

use super::Seen;
use crate::SeatName;

/// What the engine of a process wants to be told of, for [`Store::watch`](crate::Store::watch).
#[derive(Clone)]
pub struct Interest(Arc<Shared>);

/// Takes what a store has to tell. Clones take the same.
///
/// It never blocks, and holds no more than the last word on each seat. What is said of a seat that no election is about
/// is dropped.
#[derive(Clone)]
pub struct News(Arc<Shared>);

/// What is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All seats, also those that elections will be about later.
    All,
    /// This seat.
    Seat(&'a SeatName),
}

/// A change of what the engine wants to know of a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestChange {
    /// Which seat.
    pub seat: SeatName,
    /// `None`: nobody wants to know of it any more.
    pub wanted: Option<SeatInterest>,
}

/// What the engine wants to know of a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatInterest {
    /// The lease of its election.
    pub lease: Duration,
    /// The seat as it was last seen; `None` before it was.
    pub seen: Option<Seen>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    to_store: Notify,
    to_engine: Notify,
}

#[derive(Default)]
struct State {
    wanted: BTreeMap<SeatName, SeatInterest>,
    /// Those that the store has not been told of since they changed.
    changed: BTreeSet<SeatName>,
    heard: Heard,
}

/// What a store has told and the engine has not taken in yet.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) all: Hearing,
    pub(crate) seats: BTreeMap<SeatName, OfSeat>,
    pub(crate) sessions: BTreeSet<SessionId>,
    /// How many reports this was made of.
    pub(crate) reports: u64,
    /// Some were about seats that no election is about.
    pub(crate) of_others: bool,
}

/// Whether the store listens.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hearing {
    /// It did not for a while.
    pub(crate) gap: bool,
    /// It does now.
    pub(crate) listening: bool,
}

#[derive(Default)]
pub(crate) struct OfSeat {
    pub(crate) hearing: Hearing,
    pub(crate) holder: Option<PushDetail>,
    pub(crate) request: bool,
    pub(crate) lost: bool,
}

impl Interest {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Waits for something to change, and returns all that has: at first, everything. What changes several times is
    /// told once, as it is last. Cancel safe.
    pub async fn next(&self) -> Vec<InterestChange> {
        loop {
            let woken = self.0.to_store.notified();
            {
                let mut state = self.0.lock();
                if !state.changed.is_empty() {
                    let changed = std::mem::take(&mut state.changed).into_iter();
                    return changed
                        .map(|seat| InterestChange { wanted: state.wanted.get(&seat).cloned(), seat })
                        .collect();
                }
            }
            woken.await;
        }
    }

    pub(crate) fn news(&self) -> News {
        News(self.0.clone())
    }

    pub(crate) fn want(&self, seat: SeatName, wanted: SeatInterest) {
        let mut state = self.0.lock();
        // Another election may be about the same seat, and has seen it.
        let before = state.wanted.remove(&seat).and_then(|wanted| wanted.seen);
        state.wanted.insert(seat.clone(), SeatInterest { seen: wanted.seen.or(before), ..wanted });
        state.changed.insert(seat);
        self.0.to_store.notify_one();
    }

    pub(crate) fn drop_seat(&self, seat: &SeatName) {
        let mut state = self.0.lock();
        state.heard.seats.remove(seat);
        if state.wanted.remove(seat).is_some() {
            state.changed.insert(seat.clone());
            self.0.to_store.notify_one();
        }
    }

    /// Whoever watches next is told of everything again.
    pub(crate) fn tell_all_again(&self) {
        let mut state = self.0.lock();
        let State { wanted, changed, .. } = &mut *state;
        changed.clear();
        changed.extend(wanted.keys().cloned());
        self.0.to_store.notify_one();
    }

    /// Waits until something was heard.
    pub(crate) async fn heard(&self) {
        self.0.to_engine.notified().await;
    }

    pub(crate) fn take_heard(&self) -> Heard {
        std::mem::take(&mut self.0.lock().heard)
    }
}

impl News {
    /// Makes news that nobody takes in, for tests of a store by itself.
    pub fn unheard() -> Self {
        Self(Arc::default())
    }

    /// The store listens: nothing that happens from now on is missed. Seats that were read before are read again.
    pub fn listening(&self, scope: Scope<'_>) {
        self.tell(|state| {
            if let Some(hearing) = state.hearing(scope) {
                hearing.listening = true;
            }
        });
    }

    /// The store does not listen any more, and may have missed something. Until it says that it listens again, seats
    /// are looked at every so often.
    pub fn gap(&self, scope: Scope<'_>) {
        self.tell(|state| {
            if scope == Scope::All {
                state.heard.seats.values_mut().for_each(|seat| seat.hearing = Hearing::default());
            }
            if let Some(hearing) = state.hearing(scope) {
                *hearing = Hearing { gap: true, listening: false };
            }
        });
    }

    /// The holder of a seat may have changed, or its session may be over. Not to be told at every renewal. Changes of one
    /// seat are told in the order in which they happened: what is said last is taken for what the seat holds now.
    pub fn holder(&self, seat: &SeatName, said: PushDetail) {
        self.tell(|state| {
            if let Some(heard) = state.of_seat(seat) {
                heard.holder = Some(said);
            }
        });
    }

    /// A request lies on the board of a seat.
    pub fn request(&self, seat: &SeatName) {
        self.tell(|state| {
            if let Some(heard) = state.of_seat(seat) {
                heard.request = true;
            }
        });
    }

    /// A session is over, be it our own or another's. See [`Store::session_of`](crate::Store::session_of).
    pub fn session_over(&self, session: &SessionId) {
        self.tell(|state| state.heard.sessions.extend([session.clone()]));
    }

    /// The session that we hold this seat on is over.
    pub(crate) fn lost(&self, seat: &SeatName) {
        self.tell(|state| {
            if let Some(heard) = state.of_seat(seat) {
                heard.lost = true;
            }
        });
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        state.heard.reports += 1;
        change(&mut state);
        drop(state);
        self.0.to_engine.notify_one();
    }
}

impl Heard {
    pub(crate) fn begins_to_listen(&self) -> bool {
        self.all.listening || self.seats.values().any(|heard| heard.hearing.listening)
    }

    /// Hands it to those that it concerns. The end of a session comes first: what was held on it may not be believed
    /// any more.
    pub(crate) fn tell<E: Ord + Copy>(
        &self,
        subscriptions: &mut Subscriptions<SeatName, E>,
        told: &mut Vec<(E, Notification)>,
    ) {
        for session in &self.sessions {
            subscriptions.session_over(session, told);
        }
        for (seat, _) in self.seats.iter().filter(|(_, heard)| heard.lost) {
            subscriptions.lost(seat, told);
        }
        if self.all.gap {
            subscriptions.gap(None, told);
        }
        if self.all.listening {
            subscriptions.listening(None, told);
        }
        for (seat, heard) in &self.seats {
            if heard.hearing.gap {
                subscriptions.gap(Some(seat), told);
            }
            if heard.hearing.listening {
                subscriptions.listening(Some(seat), told);
            }
            if let Some(said) = heard.holder {
                subscriptions.holder(seat, said, told);
            }
            if heard.request {
                subscriptions.request(seat, told);
            }
        }
    }
}

impl State {
    /// `None` if no election is about it.
    fn of_seat(&mut self, seat: &SeatName) -> Option<&mut OfSeat> {
        let is_wanted = self.wanted.contains_key(seat);
        self.heard.of_others |= !is_wanted;
        is_wanted.then(|| self.heard.seats.entry(seat.clone()).or_default())
    }

    fn hearing(&mut self, scope: Scope<'_>) -> Option<&mut Hearing> {
        match scope {
            Scope::All => Some(&mut self.heard.all),
            Scope::Seat(seat) => self.of_seat(seat).map(|heard| &mut heard.hearing),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interest").field("seats", &self.0.lock().wanted.len()).finish()
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News").finish_non_exhaustive()
    }
}
