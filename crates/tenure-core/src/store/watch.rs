//! The seats that the engine is interested in, and the notifications of the store about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_protocol::{Notification, PushDetail, Release, SessionId, Subscriptions};
use tokio::sync::Notify;

use super::Seen;
use crate::SeatName;

/// The seats that the engine of a process is interested in, for [`Store::watch`](crate::Store::watch).
#[derive(Clone)]
pub struct Interest(Arc<Shared>);

/// Receives the notifications of a store. Clones share one queue.
///
/// It never blocks, and keeps only the last notification of each kind for each seat. It drops notifications about seats
/// that no election of this process is about.
#[derive(Clone)]
pub struct News(Arc<Shared>);

/// The seats to which a store listens, or has stopped listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All seats, including those of elections that start later.
    All,
    /// This seat alone, for stores that subscribe seat by seat.
    Seat(&'a SeatName),
}

/// A change of the engine's interest in a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestChange {
    /// The name of the seat that the change is about.
    pub seat: SeatName,
    /// The new interest; `None` if no election is about the seat any more.
    pub wanted: Option<SeatInterest>,
}

/// The engine's interest in a seat: the lease, and what it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatInterest {
    /// The lease of the election that is about the seat.
    pub lease: Duration,
    /// The seat as it was last seen; `None` before the first read.
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
    /// Boxed, because the map reserves room for many more entries than it has.
    wanted: BTreeMap<SeatName, Box<SeatInterest>>,
    /// Seats whose change of interest the store has not received yet.
    changed: BTreeSet<SeatName>,
    pending: PendingNews,
}

/// The notifications of a store that the engine has not processed yet.
#[derive(Default)]
pub(crate) struct PendingNews {
    pub(crate) all: ListeningChange,
    pub(crate) seats: BTreeMap<SeatName, SeatNews>,
    pub(crate) sessions: BTreeSet<SessionId>,
    /// The number of notifications that were combined into this.
    pub(crate) reports: u64,
    /// Whether some of them named seats that no election of this process uses.
    pub(crate) of_others: bool,
}

/// Changes of whether the store listens.
#[derive(Clone, Copy, Default)]
pub(crate) struct ListeningChange {
    /// The store stopped listening, and possibly missed changes.
    pub(crate) gap: bool,
    /// The store has begun to listen.
    pub(crate) listening: bool,
}

/// The notifications about one seat.
#[derive(Default)]
pub(crate) struct SeatNews {
    pub(crate) listening_change: ListeningChange,
    pub(crate) holder: Option<PushDetail>,
    /// The seat itself, if the last change of its holder was a release.
    pub(crate) release: Option<Arc<Release>>,
    pub(crate) request: bool,
    pub(crate) lost: bool,
}

/// The number of seats that the engine is interested in, whose interest has changed, and that it was notified of.
#[cfg(test)]
pub(crate) struct Sizes {
    pub(crate) wanted: usize,
    pub(crate) changed: usize,
    pub(crate) pending: usize,
}

impl Interest {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    #[cfg(test)]
    pub(crate) fn sizes(&self) -> Sizes {
        let state = self.0.lock();
        let pending = state.pending.seats.len() + state.pending.sessions.len();
        Sizes { wanted: state.wanted.len(), changed: state.changed.len(), pending }
    }

    /// Waits until the interest changes, and returns all changes. The first call returns all seats.
    ///
    /// A seat that changes several times is returned once, with its last state. Cancel safe.
    pub async fn next(&self) -> Vec<InterestChange> {
        loop {
            let woken = self.0.to_store.notified();
            {
                let mut state = self.0.lock();
                if !state.changed.is_empty() {
                    let changed = std::mem::take(&mut state.changed).into_iter();
                    return changed
                        .map(|seat| InterestChange { wanted: state.wanted.get(&seat).map(|it| (**it).clone()), seat })
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
        // Another election or an observer of the same seat has possibly read it already.
        match state.wanted.get_mut(&seat) {
            Some(before) => {
                // A watch that is no longer served must be noticed in time for the shortest lease.
                let (lease, seen) = (before.lease.min(wanted.lease), wanted.seen.or(before.seen.take()));
                **before = SeatInterest { lease, seen };
            }
            None => drop(state.wanted.insert(seat.clone(), Box::new(wanted))),
        }
        state.changed.insert(seat);
        self.0.to_store.notify_one();
    }

    pub(crate) fn drop_seat(&self, seat: &SeatName) {
        let mut state = self.0.lock();
        state.pending.seats.remove(seat);
        if state.wanted.remove(seat).is_some() {
            state.changed.insert(seat.clone());
            self.0.to_store.notify_one();
        }
    }

    /// Makes the next watch receive all seats again.
    pub(crate) fn resend_all(&self) {
        let mut state = self.0.lock();
        let State { wanted, changed, .. } = &mut *state;
        changed.clear();
        changed.extend(wanted.keys().cloned());
        self.0.to_store.notify_one();
    }

    /// Waits until the store has sent a notification.
    pub(crate) async fn arrived(&self) {
        self.0.to_engine.notified().await;
    }

    pub(crate) fn take_pending(&self) -> PendingNews {
        std::mem::take(&mut self.0.lock().pending)
    }
}

impl News {
    /// Creates a receiver that no engine reads, for tests of a store without an engine.
    pub fn unheard() -> Self {
        Self(Arc::default())
    }

    /// Reports that the store listens: it will notify of all changes from now on. The engine reads the seats again
    /// that it read before.
    pub fn listening(&self, scope: Scope<'_>) {
        self.report(|state| {
            if let Some(listening_change) = state.listening_change(scope) {
                listening_change.listening = true;
            }
        });
    }

    /// Reports a gap: the store no longer listens, and has possibly missed changes. Until it listens again, candidates
    /// read their seats at regular intervals.
    pub fn gap(&self, scope: Scope<'_>) {
        self.report(|state| {
            if scope == Scope::All {
                state.pending.seats.values_mut().for_each(|seat| seat.listening_change = ListeningChange::default());
            }
            if let Some(listening_change) = state.listening_change(scope) {
                *listening_change = ListeningChange { gap: true, listening: false };
            }
        });
    }

    /// Reports that the holder of a seat has possibly changed, or that its session has possibly ended.
    ///
    /// Do not call this at every renewal. Report the changes of a seat in the order in which they happened: the engine
    /// takes the last one for the current state of the seat.
    pub fn holder(&self, seat: &SeatName, said: PushDetail) {
        self.report(|state| {
            if let Some(news) = state.of_seat(seat) {
                (news.holder, news.release) = (Some(said), None);
            }
        });
    }

    /// Reports that the term of a seat was released, with the vacant seat as a read would return it. Then a follower
    /// can bid without reading the seat first, which saves it a round trip.
    ///
    /// The rules of [`holder`](Self::holder) hold here as well. A store that does not have the version of the seat or
    /// the identity of its data at hand calls `holder` instead. So does one that cannot be certain that the release has
    /// taken effect: a seat that is still held after this looks as if it had gone backwards, and candidates leave it
    /// alone for a lease.
    pub fn released(&self, seat: &SeatName, release: Release) {
        self.report(|state| {
            if let Some(news) = state.of_seat(seat) {
                news.holder = Some(PushDetail::Names(Some(release.record.names())));
                news.release = Some(Arc::new(release));
            }
        });
    }

    /// Reports that a request to the leader of a seat is pending on its board.
    pub fn request(&self, seat: &SeatName) {
        self.report(|state| {
            if let Some(news) = state.of_seat(seat) {
                news.request = true;
            }
        });
    }

    /// Reports that a session has ended, of this process or of another one. See
    /// [`Store::session_of`](crate::Store::session_of).
    ///
    /// A follower that saw the seat held on this session can bid on it without reading it again.
    pub fn session_over(&self, session: &SessionId) {
        self.report(|state| state.pending.sessions.extend([session.clone()]));
    }

    /// Reports that the session with which this process holds the seat has ended.
    pub(crate) fn lost(&self, seat: &SeatName) {
        self.report(|state| {
            if let Some(news) = state.of_seat(seat) {
                news.lost = true;
            }
        });
    }

    fn report(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        state.pending.reports += 1;
        change(&mut state);
        drop(state);
        self.0.to_engine.notify_one();
    }
}

impl PendingNews {
    pub(crate) fn begins_to_listen(&self) -> bool {
        self.all.listening || self.seats.values().any(|news| news.listening_change.listening)
    }

    /// Returns the seat as it is after a release, if the last change of its holder was one.
    pub(crate) fn release_of(&self, seat: &SeatName) -> Option<&Arc<Release>> {
        self.seats.get(seat)?.release.as_ref()
    }

    /// Returns all seats that were released last.
    pub(crate) fn releases(&self) -> impl Iterator<Item = (SeatName, Arc<Release>)> {
        self.seats.iter().filter_map(|(seat, news)| Some((seat.clone(), news.release.clone()?)))
    }

    /// Delivers the notifications to the elections that they concern. The end of a session comes first for the elections
    /// that lead on it, because they must not rely on it any more. It comes last for their followers: if the seat has
    /// changed as well, a bid on it as it was would be lost.
    pub(crate) fn deliver<E: Ord + Copy>(
        &self,
        subscriptions: &mut Subscriptions<SeatName, E>,
        notifications: &mut Vec<(E, Notification)>,
    ) {
        for (seat, _) in self.seats.iter().filter(|(_, news)| news.lost) {
            subscriptions.lost(seat, notifications);
        }
        if self.all.gap {
            subscriptions.gap(None, notifications);
        }
        if self.all.listening {
            subscriptions.listening(None, notifications);
        }
        for (seat, news) in &self.seats {
            if news.listening_change.gap {
                subscriptions.gap(Some(seat), notifications);
            }
            if news.listening_change.listening {
                subscriptions.listening(Some(seat), notifications);
            }
            if let Some(said) = news.holder {
                subscriptions.holder(seat, said, notifications);
            }
            if news.request {
                subscriptions.request(seat, notifications);
            }
        }
        let mut ends = Vec::new();
        subscriptions.sessions_over(&self.sessions, &mut ends);
        let (own, of_others): (Vec<_>, Vec<_>) =
            ends.into_iter().partition(|(_, notification)| *notification == Notification::SessionOver);
        drop(notifications.splice(0..0, own));
        notifications.extend(of_others);
    }
}

impl State {
    /// Returns the notifications of a seat; `None` if no election is about it.
    fn of_seat(&mut self, seat: &SeatName) -> Option<&mut SeatNews> {
        let is_wanted = self.wanted.contains_key(seat);
        self.pending.of_others |= !is_wanted;
        is_wanted.then(|| self.pending.seats.entry(seat.clone()).or_default())
    }

    fn listening_change(&mut self, scope: Scope<'_>) -> Option<&mut ListeningChange> {
        match scope {
            Scope::All => Some(&mut self.pending.all),
            Scope::Seat(seat) => self.of_seat(seat).map(|news| &mut news.listening_change),
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

#[cfg(test)]
mod tests {
    use tenure_protocol::{Candidate, Incarnation, Record, Token, Version, Watching};

    use super::*;

    #[test]
    fn a_follower_learns_of_a_release_before_the_end_of_the_session_that_released() {
        let (interest, seat, session) = (Interest::new(), SeatName::new("jobs").unwrap(), SessionId::new("theirs"));
        let lease = Duration::from_secs(15);
        interest.want(seat.clone(), SeatInterest { lease, seen: None });
        let (mut subscriptions, mut notifications) = (Subscriptions::new(), Vec::new());
        let holder = Candidate { id: "other".into(), incarnation: Incarnation::from_bits(2) };
        let record = Record::new(Some(holder), Token::new(5), lease);
        for (election, own) in [(1, false), (2, true)] {
            subscriptions.begin(election, seat.clone(), &mut notifications);
            subscriptions.read_sent(election);
            subscriptions.read_answered(election);
            let names = Some(record.names());
            let watching = Watching { names, session: Some(session.clone()), own, ..Watching::default() };
            subscriptions.watch(election, watching, &mut notifications);
        }
        notifications.clear();

        let news = interest.news();
        let vacant = Record { holder: None, ..record };
        news.released(&seat, Release { record: vacant, version: Version::new("v6"), identity: None });
        news.session_over(&session);
        interest.take_pending().deliver(&mut subscriptions, &mut notifications);
        let holder = Notification::Holder;
        assert_eq!(notifications, [(2, Notification::SessionOver), (1, holder), (2, holder)]);
    }
}
