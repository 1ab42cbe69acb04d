//! Routes the pushes of a store: one watch serves all elections of a process.
//!
//! ```text
//!   store: listening, gap, holder, request, session over
//!                          │
//!                          ▼
//!                   Subscriptions ──▶ notifies each election of changes, and whether pushes arrive
//!                          ▲
//!   engine: reads that were sent, what each election has seen
//! ```
//!
//! # Listen, then look
//!
//! A change is missed if it happens after the seat was read and before the store starts to listen. So only a read
//! that is sent after the store has reported that it listens counts as the look; a read that was sent before that
//! is repeated. The same holds for a push that arrives while a read is in flight: the read may have missed the
//! change.
//!
//! Both rules follow from one order. Every push that arrives and every read that is sent gets the next number. An
//! election that has seen the seat by the read with number *n* is notified of everything with a higher number:
//! changes, and the start of listening. A read has seen every change that was pushed before the read was sent. A
//! push gets its number only when the engine processes it, so the number can be too high. That costs an unnecessary
//! look and nothing else.
//!
//! # Sessions that have ended
//!
//! The end of a session can overtake earlier answers about it: a seat was won on it, or read while it was alive,
//! and the answer is still in flight. So sessions that have ended are remembered. A later answer that this process
//! won or kept a seat on such a session is not believed. (A read needs no such check, because a read alone never
//! makes a leader.) And an election that waits for another candidate's session is notified at once if that session
//! has ended since the election looked.
//!
//! # No unnecessary notifications
//!
//! A push wakes only the elections of its seat. If the push says what the seat holds now, it does not wake an
//! election that has already seen that: a leader is not woken by its own bid. Each election is notified once of a
//! new holder until it watches again, and once of requests until it reads them, however many pushes arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Change, Incarnation, Input, Token};

/// A notification for one election, to step its machine with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Whether pushes for the seat arrive. While they do not, the election must look for changes itself.
    Listening(bool),
    /// The holder of the seat may have changed.
    Holder,
    /// The session that was last seen to hold the seat has ended. It is the session of another process.
    HolderOver,
    /// A request to the leader may be pending on the board.
    Request,
    /// The session on which the election holds its own seat has ended.
    SessionOver,
}

impl Notification {
    /// Returns the input to step the machine of the election with.
    pub const fn into_input(self) -> Input {
        match self {
            Self::Listening(listening) => Input::Listening(listening),
            Self::Holder => Input::Changed(Change::Look),
            Self::HolderOver => Input::HolderOver,
            Self::Request => Input::Changed(Change::Request),
            Self::SessionOver => Input::Changed(Change::SessionOver),
        }
    }
}

/// How much a push says about the new state of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushDetail {
    /// No detail: only that the holder may have changed.
    Nothing,
    /// The nonce of the last write of the seat.
    Nonce(u64),
    /// The holder and term that the seat names now. `None`: the seat does not exist.
    Names(Option<(Option<Incarnation>, Token)>),
}

/// What an election has seen of its seat, and what it wants to be notified of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// The holder and term that it saw. `None`: the seat did not exist.
    pub names: Option<(Option<Incarnation>, Token)>,
    /// The nonce of the record that it saw, if the record has one.
    pub nonce: Option<u64>,
    /// Whether the election wants to be notified of requests. Only a leader does.
    pub requests: bool,
    /// The session that holds the seat, if the store has sessions.
    pub session: Option<SessionId>,
    /// Whether `session` belongs to this process.
    pub own: bool,
}

/// The name of a session with a store. No two sessions ever have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Creates the id of the session with this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name that the store gave the session.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The elections of a process, and what each of them has been notified of.
#[derive(Debug)]
pub struct Subscriptions<S, E> {
    order: u64,
    /// The number at which the store started to listen for all seats.
    all: Option<u64>,
    /// Boxed, because the maps reserve room for many more entries than they have.
    seats: BTreeMap<S, Box<Topic<E>>>,
    elections: BTreeMap<E, Box<Subscriber<S>>>,
    /// Sessions that have ended, and the number at which this became known.
    over: BTreeMap<SessionId, u64>,
}

/// How many ended sessions are remembered, the most recent ones; more, if more have ended at once. They matter only for answers in flight, which
/// time out within a lease, and far fewer sessions end in that time.
const MAX_ENDED: usize = 4096;

#[derive(Debug)]
struct Topic<E> {
    /// The number at which the store started to listen for this seat alone.
    listening: Option<u64>,
    /// The number of the last gap that concerned this seat alone.
    gap: u64,
    pushed: Option<(u64, PushDetail)>,
    requested: u64,
    elections: Vec<E>,
}

#[derive(Debug)]
struct Subscriber<S> {
    seat: S,
    listening: bool,
    /// The last read that was sent, and the last read that was answered.
    sent: u64,
    seen: u64,
    /// When the election was last asked to read its seat, because the store had started to listen.
    look_notified: u64,
    /// When the election was last notified of the end of the holder's session.
    over_notified: u64,
    /// When the election was last asked to read its board.
    request_notified: u64,
    /// The last read of the board that was sent, or the start of the election.
    board: u64,
    watching: Option<Watching>,
    /// The election's last write, if no read was sent since.
    own_write: Option<OwnWrite>,
    /// The session that was last seen to hold the seat, and whether it belongs to this process.
    session: Option<(SessionId, bool)>,
}

/// A write of an election itself.
#[derive(Clone, Copy, Debug)]
struct OwnWrite {
    /// When it was sent.
    sent: u64,
    nonce: u64,
    /// The holder and the term that it names.
    names: (Option<Incarnation>, Token),
}

impl<S: Ord + Clone, E: Ord + Copy> Subscriptions<S, E> {
    /// Creates an empty table: no election, and a store that does not listen yet.
    pub fn new() -> Self {
        Self { order: 0, all: None, seats: BTreeMap::new(), elections: BTreeMap::new(), over: BTreeMap::new() }
    }

    /// Adds an election, before its first read. No pushes arrive for it until it gets [`Notification::Listening`].
    pub fn begin(&mut self, election: E, seat: S, out: &mut Vec<(E, Notification)>) {
        let topic = self.seats.entry(seat.clone()).or_insert_with(|| {
            Box::new(Topic { listening: None, gap: 0, pushed: None, requested: 0, elections: Vec::with_capacity(1) })
        });
        topic.elections.push(election);
        let listening = topic.listening_since(self.all).is_some();
        // A request is for one term, and no candidate knows of a term before it has begun. So the requests that
        // are on the board now are not for this election.
        self.order += 1;
        let board = self.order;
        let subscriber = Subscriber {
            seat,
            listening,
            sent: 0,
            seen: 0,
            look_notified: 0,
            over_notified: 0,
            request_notified: 0,
            board,
            watching: None,
            own_write: None,
            session: None,
        };
        self.elections.insert(election, Box::new(subscriber));
        out.push((election, Notification::Listening(listening)));
    }

    /// Removes an election. Returns its seat if no other election of the process uses it.
    pub fn end(&mut self, election: E) -> Option<S> {
        let seat = self.elections.remove(&election)?.seat;
        let topic = self.seats.get_mut(&seat)?;
        topic.elections.retain(|other| *other != election);
        if !topic.elections.is_empty() {
            return None;
        }
        self.seats.remove(&seat);
        Some(seat)
    }

    /// Records that a read of the election's seat was sent. Call it before the read leaves.
    pub fn read_sent(&mut self, election: E) {
        self.order += 1;
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.sent = self.order;
            subscriber.own_write = None;
        }
    }

    /// Records that a write of the election's seat was sent, with this nonce, holder and term. Call it before the write
    /// leaves.
    ///
    /// Two kinds of pushes are not news then. The push of the write itself can arrive before its answer, and says nothing
    /// that the answer does not say. Pushes from before the send are older than what the write has made of the seat,
    /// because a write rests on the last version. If there is no answer, the election reads its seat, and pushes from
    /// then on are news: a write can take effect late.
    pub fn write_sent(&mut self, election: E, nonce: u64, names: (Option<Incarnation>, Token)) {
        self.order += 1;
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.own_write = Some(OwnWrite { sent: self.order, nonce, names });
        }
    }

    /// Records that the last read of the election's seat was answered.
    pub fn read_answered(&mut self, election: E) {
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.seen = subscriber.sent;
            // If that read was sent before the store listened, it was not the look that was asked for. If it was sent
            // before the session ended, it may show the session alive.
            (subscriber.look_notified, subscriber.over_notified) = (0, 0);
        }
    }

    /// Records that a read of the election's board was sent. Call it before the read leaves.
    pub fn board_sent(&mut self, election: E) {
        self.order += 1;
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.board = self.order;
        }
    }

    /// Notifies the election once of anything that differs from `watching`, now or later.
    pub fn watch(&mut self, election: E, watching: Watching, out: &mut Vec<(E, Notification)>) {
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.session = watching.session.clone().map(|session| (session, watching.own));
            if !watching.requests {
                // It was asked to read requests for a term that is over.
                subscriber.request_notified = 0;
            }
            subscriber.watching = Some(watching);
            self.notify(election, out);
        }
    }

    /// Records that the store listens, for one seat or for all (also for seats to come): from now on, no change
    /// is missed.
    pub fn listening(&mut self, seat: Option<&S>, out: &mut Vec<(E, Notification)>) {
        self.set_listening(seat, true, out);
    }

    /// Records that the store no longer listens, for one seat or for all, and may have missed something.
    pub fn gap(&mut self, seat: Option<&S>, out: &mut Vec<(E, Notification)>) {
        self.set_listening(seat, false, out);
    }

    /// Notifies the elections of a seat that the holder may have changed. Returns whether there are any.
    pub fn holder(&mut self, seat: &S, pushed: PushDetail, out: &mut Vec<(E, Notification)>) -> bool {
        self.order += 1;
        let Some(topic) = self.seats.get_mut(seat) else { return false };
        topic.pushed = Some((self.order, pushed));
        self.notify_seat(seat, out);
        true
    }

    /// Notifies the leader of a seat that a request may be pending. Returns whether the seat has elections
    /// here.
    pub fn request(&mut self, seat: &S, out: &mut Vec<(E, Notification)>) -> bool {
        self.order += 1;
        let Some(topic) = self.seats.get_mut(seat) else { return false };
        topic.requested = self.order;
        self.notify_seat(seat, out);
        true
    }

    /// Notifies the elections of a seat at once that the session on which this process holds it has ended,
    /// whatever else they have been notified of. Returns whether there are any.
    pub fn lost(&mut self, seat: &S, out: &mut Vec<(E, Notification)>) -> bool {
        let Some(topic) = self.seats.get(seat) else { return false };
        out.extend(topic.elections.iter().map(|election| (*election, Notification::SessionOver)));
        true
    }

    /// Records that sessions have ended. An election that leads on one of them is notified at once, whatever else it
    /// has been notified of; an election that waits for another candidate's session is notified, too. However many
    /// sessions end at once, the elections are searched once.
    pub fn sessions_over(&mut self, sessions: &BTreeSet<SessionId>, out: &mut Vec<(E, Notification)>) {
        if sessions.is_empty() {
            return;
        }
        self.order += 1;
        self.over.extend(sessions.iter().map(|session| (session.clone(), self.order)));
        if self.over.len() > MAX_ENDED {
            let mut ends: Vec<u64> = self.over.values().copied().collect();
            ends.sort_unstable();
            let oldest = ends[ends.len() - MAX_ENDED];
            self.over.retain(|_, at| *at >= oldest);
        }
        let concerned = self.elections.iter().filter_map(|(election, subscriber)| {
            let (held, own) = subscriber.session.as_ref()?;
            sessions.contains(held).then_some((*election, *own))
        });
        let concerned: Vec<_> = concerned.collect();
        for (election, own) in concerned {
            match own {
                true => out.push((election, Notification::SessionOver)),
                false => self.notify(election, out),
            }
        }
    }

    /// Returns whether a session is known to have ended.
    pub fn is_over(&self, session: &SessionId) -> bool {
        self.over.contains_key(session)
    }

    /// Returns whether any election of this process wants to be notified of requests for a seat.
    pub fn wants_requests(&self, seat: &S) -> bool {
        let is_interested = |election: &E| {
            let watching = self.elections.get(election).and_then(|subscriber| subscriber.watching.as_ref());
            watching.is_some_and(|watching| watching.requests)
        };
        self.seats.get(seat).is_some_and(|topic| topic.elections.iter().any(is_interested))
    }

    fn set_listening(&mut self, seat: Option<&S>, listening: bool, out: &mut Vec<(E, Notification)>) {
        self.order += 1;
        let since = listening.then_some(self.order);
        // Listening starts anew only after a gap.
        let begun = |before: Option<u64>| before.filter(|_| listening).or(since);
        let concerned: Vec<S> = match seat {
            Some(seat) => {
                let Some(topic) = self.seats.get_mut(seat) else { return };
                topic.listening = begun(topic.listening);
                if !listening {
                    topic.gap = self.order;
                }
                vec![seat.clone()]
            }
            None => {
                let all = begun(self.all);
                for topic in self.seats.values_mut() {
                    // A seat with a gap of its own starts anew, even if the other seats had no gap.
                    let missed = listening && all.is_some_and(|all| all <= topic.gap);
                    topic.listening = topic.listening.filter(|_| listening).or(since.filter(|_| missed));
                }
                self.all = all;
                self.seats.keys().cloned().collect()
            }
        };
        concerned.iter().for_each(|seat| self.notify_seat(seat, out));
    }

    fn notify_seat(&mut self, seat: &S, out: &mut Vec<(E, Notification)>) {
        let elections = self.seats.get(seat).map(|topic| topic.elections.clone()).unwrap_or_default();
        elections.into_iter().for_each(|election| self.notify(election, out));
    }

    /// Sends an election the notification that is due, if any.
    fn notify(&mut self, election: E, out: &mut Vec<(E, Notification)>) {
        let Some(subscriber) = self.elections.get_mut(&election) else { return };
        let Some(topic) = self.seats.get(&subscriber.seat) else { return };
        let since = topic.listening_since(self.all);
        if subscriber.listening != since.is_some() {
            subscriber.listening = since.is_some();
            out.push((election, Notification::Listening(subscriber.listening)));
        }
        let Some(watching) = &subscriber.watching else { return };
        let ended = watching.session.as_ref().and_then(|session| self.over.get(session));
        if ended.is_some() && watching.own {
            subscriber.watching = None;
            out.push((election, Notification::SessionOver));
        } else if topic.pushed.is_some_and(|(at, pushed)| subscriber.is_news(watching, at, pushed)) {
            // Also if the session of the former holder has ended, because another candidate may hold the seat now.
            subscriber.watching = None;
            out.push((election, Notification::Holder));
        } else if ended.is_some_and(|at| *at > subscriber.seen.max(subscriber.over_notified)) {
            // An election that does not bid watches the same session again, without a read.
            (subscriber.watching, subscriber.over_notified) = (None, self.order);
            out.push((election, Notification::HolderOver));
        } else if since.is_some_and(|since| since > subscriber.seen.max(subscriber.look_notified)) {
            // Nothing is known to have changed, so the election keeps its watch.
            subscriber.look_notified = self.order;
            out.push((election, Notification::Holder));
        } else if watching.requests
            && subscriber.request_notified <= subscriber.board
            && since.is_some_and(|since| since.max(topic.requested) > subscriber.board)
        {
            subscriber.request_notified = self.order;
            out.push((election, Notification::Request));
        }
    }
}

impl<S> Subscriber<S> {
    /// Returns whether a push that arrived at this number says something that the election has not seen.
    fn is_news(&self, watching: &Watching, at: u64, pushed: PushDetail) -> bool {
        let is_known = at <= self.seen
            || self.own_write.is_some_and(|write| {
                let is_of_write = match pushed {
                    PushDetail::Nothing => false,
                    PushDetail::Nonce(nonce) => nonce == write.nonce,
                    PushDetail::Names(names) => names == Some(write.names),
                };
                // The election watches the seat as its write has left it.
                is_of_write || (watching.nonce == Some(write.nonce) && at < write.sent)
            });
        !is_known && watching.differs_from(pushed)
    }
}

impl<E> Topic<E> {
    fn listening_since(&self, all: Option<u64>) -> Option<u64> {
        all.filter(|all| *all > self.gap).or(self.listening)
    }
}

impl Watching {
    fn differs_from(&self, pushed: PushDetail) -> bool {
        match pushed {
            PushDetail::Nothing => true,
            PushDetail::Nonce(nonce) => self.nonce != Some(nonce),
            PushDetail::Names(names) => self.names != names,
        }
    }
}

impl<S: Ord + Clone, E: Ord + Copy> Default for Subscriptions<S, E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "subscriptions_tests.rs"]
mod tests;
