//! Who is told what: one watch of the store serves all elections of a process.
//!
//! ```text
//!   store: listening, gap, holder, request, session over
//!                          │
//!                          ▼
//!                   Subscriptions ──▶ tells each election what is news to it, and whether it hears
//!                          ▲
//!   engine: reads that were sent, what each election has seen
//! ```
//!
//! # Listen, then look
//!
//! A change is missed if it happens after the seat was read and before the store listens. So only a read that was
//! sent after the store said that it listens counts as the look; one sent before that is made again. The same goes for
//! what is heard while a read is on its way: the read may have missed it.
//!
//! Both come down to an order. Everything that is heard, and every read that is sent, gets the next number. An
//! election that has seen the seat by a read of some number is told of everything with a higher one: news, and the
//! beginning of listening. What was heard before a read was sent, the read has seen. That a number is given only when
//! the engine takes in what it has heard, and so may be too high, costs a look that was not needed, and nothing else.
//!
//! # Sessions that are over
//!
//! The end of a session can overtake what was said of it before: a seat was won on it, or read while it still lived,
//! and the answer is on its way. So sessions that are over are remembered. That we have won or kept a seat on one of
//! them is not believed any more. (A read needs no such check: nobody leads by what it has read alone.) And an election
//! that waits for another's session which has ended since it looked is told at once.
//!
//! # No more than is needed
//!
//! A push wakes the elections of its seat alone. If it says what the seat holds now, it wakes none that has seen that:
//! a leader is not woken by its own bid. And each is told once of a new holder until it watches again, and once of
//! requests until it reads them, however much is heard.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Change, Incarnation, Input, Token};

/// What is news to an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Whether the store is listened to for its seat: while it is not, changes must be looked for.
    Hears(bool),
    /// The holder may have changed.
    Holder,
    /// A request may lie on the board.
    Request,
    /// The session that its own seat is held on is over.
    SessionOver,
}

impl Notification {
    /// What its machine is stepped with.
    pub const fn into_input(self) -> Input {
        match self {
            Self::Hears(hears) => Input::Hears(hears),
            Self::Holder => Input::Changed(Change::Look),
            Self::Request => Input::Changed(Change::Request),
            Self::SessionOver => Input::Changed(Change::SessionOver),
        }
    }
}

/// What a push says of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushDetail {
    /// Only that the holder may have changed.
    Nothing,
    /// That the seat was last written with this nonce.
    Nonce(u64),
    /// That the seat names this holder and term now; `None`: that there is no seat.
    Names(Option<(Option<Incarnation>, Token)>),
}

/// What an election has seen of its seat, and minds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// The holder and term that it saw; `None`: there was no seat.
    pub names: Option<(Option<Incarnation>, Token)>,
    /// The nonce of what it saw.
    pub nonce: Option<u64>,
    /// Whether requests are news to it.
    pub requests: bool,
    /// The session that the seat is held on.
    pub session: Option<SessionId>,
    /// Whether that is its own.
    pub own: bool,
}

/// Names a session with a store. No two sessions ever have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// A session with this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The elections of a process, and what they are to be told.
#[derive(Debug)]
pub struct Subscriptions<S, E> {
    order: u64,
    /// Since when everything is listened to.
    all: Option<u64>,
    seats: BTreeMap<S, Topic<E>>,
    elections: BTreeMap<E, Subscriber<S>>,
    /// Sessions that are over, and when that was heard.
    over: BTreeMap<SessionId, u64>,
}

/// So many sessions that are over are remembered, the last ones. That is for answers that are on their way, which are
/// given up within a lease: so many do not end meanwhile.
const REMEMBERED: usize = 4096;

#[derive(Debug)]
struct Topic<E> {
    /// Since when it is listened to by itself.
    listening: Option<u64>,
    /// When something of it alone may have been missed.
    gap: u64,
    said: Option<(u64, PushDetail)>,
    requested: u64,
    elections: Vec<E>,
}

#[derive(Debug)]
struct Subscriber<S> {
    seat: S,
    hears: bool,
    /// The last read that was sent, and the last one that was answered.
    sent: u64,
    seen: u64,
    /// When it was last told to look because the store had begun to listen, and to read its board.
    looks: u64,
    asks: u64,
    /// The last reading of the board that was sent, or its beginning.
    board: u64,
    watching: Option<Watching>,
    /// The session that its seat was last seen to be held on, and whether that is its own.
    session: Option<(SessionId, bool)>,
}

impl<S: Ord + Clone, E: Ord + Copy> Subscriptions<S, E> {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self { order: 0, all: None, seats: BTreeMap::new(), elections: BTreeMap::new(), over: BTreeMap::new() }
    }

    /// An election begins, before its first read. It does not hear anything until it is told so.
    pub fn begin(&mut self, election: E, seat: S, out: &mut Vec<(E, Notification)>) {
        let topic = self.seats.entry(seat.clone()).or_insert_with(|| Topic {
            listening: None,
            gap: 0,
            said: None,
            requested: 0,
            elections: Vec::new(),
        });
        topic.elections.push(election);
        let hears = topic.heard_since(self.all).is_some();
        // A request is for one term, and nobody knows of a term of ours before it has begun: what lies on the board
        // by now is not for us.
        self.order += 1;
        let board = self.order;
        let subscriber =
            Subscriber { seat, hears, sent: 0, seen: 0, looks: 0, asks: 0, board, watching: None, session: None };
        self.elections.insert(election, subscriber);
        out.push((election, Notification::Hears(hears)));
    }

    /// An election has ended. Returns its seat, if no other election is about that.
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

    /// A read of its seat is sent.
    pub fn read_sent(&mut self, election: E) {
        self.order += 1;
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.sent = self.order;
        }
    }

    /// The last read of its seat that was sent is answered.
    pub fn read_answered(&mut self, election: E) {
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.seen = subscriber.sent;
            // If it was sent before the store listened, it was not the look that was asked for.
            subscriber.looks = 0;
        }
    }

    /// A reading of its board is sent.
    pub fn board_sent(&mut self, election: E) {
        self.order += 1;
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.board = self.order;
        }
    }

    /// From now on, an election is told of what differs from this, once.
    pub fn watch(&mut self, election: E, watching: Watching, out: &mut Vec<(E, Notification)>) {
        if let Some(subscriber) = self.elections.get_mut(&election) {
            subscriber.session = watching.session.clone().map(|session| (session, watching.own));
            if !watching.requests {
                // What it was asked to read in a term that is over was for that term.
                subscriber.asks = 0;
            }
            subscriber.watching = Some(watching);
            self.tell(election, out);
        }
    }

    /// The store listens, for one seat or for all, also for seats to come: nothing that happens from now on is missed.
    pub fn listening(&mut self, seat: Option<&S>, out: &mut Vec<(E, Notification)>) {
        self.hear(seat, true, out);
    }

    /// The store no longer listens, and may have missed something.
    pub fn gap(&mut self, seat: Option<&S>, out: &mut Vec<(E, Notification)>) {
        self.hear(seat, false, out);
    }

    /// The holder of a seat may have changed. Returns whether anybody is about that seat.
    pub fn holder(&mut self, seat: &S, said: PushDetail, out: &mut Vec<(E, Notification)>) -> bool {
        self.order += 1;
        let Some(topic) = self.seats.get_mut(seat) else { return false };
        topic.said = Some((self.order, said));
        self.tell_seat(seat, out);
        true
    }

    /// A request may lie on the board of a seat. Returns whether anybody is about that seat.
    pub fn request(&mut self, seat: &S, out: &mut Vec<(E, Notification)>) -> bool {
        self.order += 1;
        let Some(topic) = self.seats.get_mut(seat) else { return false };
        topic.requested = self.order;
        self.tell_seat(seat, out);
        true
    }

    /// The session that we hold a seat on is over. That is told at once, whatever else was.
    pub fn lost(&mut self, seat: &S, out: &mut Vec<(E, Notification)>) -> bool {
        let Some(topic) = self.seats.get(seat) else { return false };
        out.extend(topic.elections.iter().map(|election| (*election, Notification::SessionOver)));
        true
    }

    /// A session is over. If it is our own, that is told at once to whoever leads on it, whatever else was; if it is
    /// another's, to whoever waits for it.
    pub fn session_over(&mut self, session: &SessionId, out: &mut Vec<(E, Notification)>) {
        self.order += 1;
        self.over.insert(session.clone(), self.order);
        if self.over.len() > REMEMBERED {
            let oldest = self.over.iter().min_by_key(|(_, at)| **at).map(|(session, _)| session.clone());
            oldest.map(|oldest| self.over.remove(&oldest));
        }
        let concerned = |(election, subscriber): (&E, &Subscriber<S>)| {
            let (held, own) = subscriber.session.as_ref()?;
            (held == session).then_some((*election, *own))
        };
        let concerned: Vec<_> = self.elections.iter().filter_map(concerned).collect();
        for (election, own) in concerned {
            match own {
                true => out.push((election, Notification::SessionOver)),
                false => self.tell(election, out),
            }
        }
    }

    /// Whether a session is known to be over.
    pub fn is_over(&self, session: &SessionId) -> bool {
        self.over.contains_key(session)
    }

    /// Whether requests to a seat are news to anybody.
    pub fn wants_requests(&self, seat: &S) -> bool {
        let minds = |election: &E| {
            let watching = self.elections.get(election).and_then(|subscriber| subscriber.watching.as_ref());
            watching.is_some_and(|watching| watching.requests)
        };
        self.seats.get(seat).is_some_and(|topic| topic.elections.iter().any(minds))
    }

    fn hear(&mut self, seat: Option<&S>, hears: bool, out: &mut Vec<(E, Notification)>) {
        self.order += 1;
        let since = hears.then_some(self.order);
        // Without a gap in between, nothing begins.
        let begun = |before: Option<u64>| before.filter(|_| hears).or(since);
        let concerned: Vec<S> = match seat {
            Some(seat) => {
                let Some(topic) = self.seats.get_mut(seat) else { return };
                topic.listening = begun(topic.listening);
                if !hears {
                    topic.gap = self.order;
                }
                vec![seat.clone()]
            }
            None => {
                let all = begun(self.all);
                for topic in self.seats.values_mut() {
                    // A seat that was missed though all others were heard begins anew.
                    let missed = hears && all.is_some_and(|all| all <= topic.gap);
                    topic.listening = topic.listening.filter(|_| hears).or(since.filter(|_| missed));
                }
                self.all = all;
                self.seats.keys().cloned().collect()
            }
        };
        concerned.iter().for_each(|seat| self.tell_seat(seat, out));
    }

    fn tell_seat(&mut self, seat: &S, out: &mut Vec<(E, Notification)>) {
        let elections = self.seats.get(seat).map(|topic| topic.elections.clone()).unwrap_or_default();
        elections.into_iter().for_each(|election| self.tell(election, out));
    }

    /// Tells an election what is news to it.
    fn tell(&mut self, election: E, out: &mut Vec<(E, Notification)>) {
        let Some(subscriber) = self.elections.get_mut(&election) else { return };
        let Some(topic) = self.seats.get(&subscriber.seat) else { return };
        let since = topic.heard_since(self.all);
        if subscriber.hears != since.is_some() {
            subscriber.hears = since.is_some();
            out.push((election, Notification::Hears(subscriber.hears)));
        }
        let Some(watching) = &subscriber.watching else { return };
        let ended = watching.session.as_ref().and_then(|session| self.over.get(session));
        if ended.is_some() && watching.own {
            subscriber.watching = None;
            out.push((election, Notification::SessionOver));
        } else if ended.is_some_and(|at| *at > subscriber.seen)
            || topic.said.is_some_and(|(at, said)| at > subscriber.seen && watching.differs_from(said))
        {
            subscriber.watching = None;
            out.push((election, Notification::Holder));
        } else if since.is_some_and(|since| since > subscriber.seen.max(subscriber.looks)) {
            // Nothing is known to be new: it goes on watching.
            subscriber.looks = self.order;
            out.push((election, Notification::Holder));
        } else if watching.requests
            && subscriber.asks <= subscriber.board
            && since.is_some_and(|since| since.max(topic.requested) > subscriber.board)
        {
            subscriber.asks = self.order;
            out.push((election, Notification::Request));
        }
    }
}

impl<E> Topic<E> {
    fn heard_since(&self, all: Option<u64>) -> Option<u64> {
        all.filter(|all| *all > self.gap).or(self.listening)
    }
}

impl Watching {
    fn differs_from(&self, said: PushDetail) -> bool {
        match said {
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
