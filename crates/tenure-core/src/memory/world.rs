//! The state of a memory: seats, sessions and notes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::Calls;
use crate::{
    Board, Clock, DataIdentity, Fault, Life, LifeKind, Moment, Note, NoteState, NoteWrite, Reading, Record, Seat,
    SeatName, StoreTime, Token, Version, record,
};

/// All seats, and the sessions that hold them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) kind: LifeKind,
    pub(super) clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) slots: BTreeMap<SeatName, Slot>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    /// The text of each note and the moment at which it expires, by board and key.
    notes: BTreeMap<(Board, String), (String, Moment)>,
    failures: VecDeque<InjectedFailure>,
    identity: Option<DataIdentity>,
    /// The difference between the store's clock and the clock of the candidates, in nanoseconds.
    stepped: i128,
    /// The last number that was given to a version or a session.
    numbers: u64,
    pub(super) calls: Calls,
}

/// One seat.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) written: Option<Written>,
    /// The highest token that was ever written. It stays when the record is deleted.
    pub(super) floor: Token,
    pub(super) news: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct Written {
    json: String,
    pub(super) version: Version,
    at: StoreTime,
    /// The session that holds the seat; zero if there is none.
    pub(super) session: SessionId,
}

pub(super) type SessionId = u64;

/// A session with a time to live, or a connection that lives until it is dropped.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ttl: Option<Duration>,
    pub(super) heartbeat: Moment,
    pub(super) ended: bool,
}

impl Session {
    pub(super) fn expires(&self) -> Option<Moment> {
        self.ttl.map(|ttl| self.heartbeat + ttl)
    }

    pub(super) fn lives(&self, now: Moment) -> bool {
        !self.ended && self.expires().is_none_or(|expires| now < expires)
    }
}

/// A failure that a test has queued for the next call.
#[derive(Clone, Copy, Debug)]
pub(super) enum InjectedFailure {
    Fault(Fault),
    AnswerLost,
    Hang,
}

impl World {
    pub(super) fn new(kind: LifeKind, clock: Clock) -> Self {
        Self { kind, clock, state: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wakes the watchers of a seat. The caller must not hold the lock of the state.
    pub(super) fn announce(&self, news: &Notify) {
        news.notify_waiters();
        self.clock.nudge();
    }

    pub(super) fn store_time(&self, state: &State) -> StoreTime {
        StoreTime::from_nanos(i128::from(self.clock.now().as_nanos()) + state.stepped)
    }

    pub(super) fn reading(&self, state: &State, seat: &SeatName) -> Result<Reading, crate::StoreError> {
        let slot = state.slots.get(seat);
        let floor = slot.map_or(Token::ZERO, |slot| slot.floor);
        let seat = match slot.and_then(|slot| slot.written.as_ref()) {
            None => None,
            Some(written) => {
                let record = record::from_json(&written.json)?;
                let life = self.life(state, &record, written);
                Some(Seat { record, version: written.version.clone(), life })
            }
        };
        Ok(Reading { seat, floor, identity: state.identity.clone() })
    }

    fn life(&self, state: &State, record: &Record, written: &Written) -> Life {
        let lives = state.sessions.get(&written.session).is_some_and(|session| session.lives(self.clock.now()));
        let by_clock = Life::Clock { now: self.store_time(state), renewed: written.at };
        match self.kind {
            LifeKind::Observe => Life::Observe,
            LifeKind::Clock => by_clock,
            LifeKind::Session if record.is_vacant() => Life::Over,
            LifeKind::Session if lives => Life::Held,
            LifeKind::Lock if lives || written.session == 0 => by_clock,
            LifeKind::Session | LifeKind::Lock => Life::Over,
        }
    }

    pub(super) fn write(&self, state: &mut State, seat: &SeatName, record: &Record, session: SessionId) -> Version {
        state.numbers += 1;
        let version = Version::new(state.numbers.to_string());
        let at = self.store_time(state);
        let written = Written { json: record::to_json(record), version: version.clone(), at, session };
        let slot = state.slots.entry(seat.clone()).or_default();
        slot.written = Some(written);
        slot.floor = slot.floor.max(record.token);
        version
    }

    /// Changes a record without a condition, for tests.
    pub(super) fn rewrite(&self, seat: &SeatName, change: impl FnOnce(Record) -> Record) -> Token {
        let mut state = self.lock();
        let known = self.reading(&state, seat).ok().and_then(|reading| reading.seat);
        let record = known.map_or_else(blank, |seat| seat.record);
        let next = Record { nonce: rand::random(), ..change(record) };
        // The new holder needs a session, as every holder does.
        let session = if self.kind == LifeKind::Session && !next.is_vacant() {
            let id = state.next_number();
            state.sessions.insert(id, Session { ttl: Some(next.lease), heartbeat: self.clock.now(), ended: false });
            id
        } else {
            0
        };
        self.write(&mut state, seat, &next, session);
        let news = state.slots.entry(seat.clone()).or_default().news.clone();
        drop(state);
        self.announce(&news);
        next.token
    }

    pub(super) fn delete(&self, seat: &SeatName) {
        let mut state = self.lock();
        let slot = state.slots.entry(seat.clone()).or_default();
        slot.written = None;
        let news = slot.news.clone();
        drop(state);
        self.announce(&news);
    }

    /// Removes a seat and its notes. The token floor stays.
    pub(super) fn forget(&self, seat: &SeatName) {
        self.lock().notes.retain(|(board, _), _| board.seat() != Some(seat));
        self.delete(seat);
    }

    pub(super) fn end_sessions(&self) {
        self.lock().sessions.values_mut().for_each(|session| session.ended = true);
        self.announce_all();
    }

    pub(super) fn end_session(&self, seat: &SeatName) {
        let mut state = self.lock();
        let holder = state.slots.get(seat).and_then(|slot| slot.written.as_ref()).map(|written| written.session);
        if let Some(session) = holder.and_then(|holder| state.sessions.get_mut(&holder)) {
            session.ended = true;
        }
        drop(state);
        self.announce_all();
    }

    pub(super) fn announce_all(&self) {
        let news: Vec<_> = self.lock().slots.values().map(|slot| slot.news.clone()).collect();
        news.iter().for_each(|news| self.announce(news));
    }

    pub(super) fn step_clock(&self, nanos: i64) {
        self.lock().stepped += i128::from(nanos);
    }

    pub(super) fn change_identity(&self, identity: DataIdentity) {
        self.lock().identity = Some(identity);
    }

    pub(super) fn fail_next(&self, failure: InjectedFailure) {
        self.lock().failures.push_back(failure);
    }

    pub(super) fn next_failure(&self) -> Option<InjectedFailure> {
        self.lock().failures.pop_front()
    }

    pub(super) fn calls(&self) -> Calls {
        self.lock().calls
    }
}

impl State {
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns the seats that have a record.
    pub(super) fn seats(&self) -> Vec<SeatName> {
        self.slots.iter().filter(|(_, slot)| slot.written.is_some()).map(|(seat, _)| seat.clone()).collect()
    }

    /// Writes or removes a note, and returns whether it existed before.
    pub(super) fn write_note(&mut self, note: &NoteWrite, now: Moment) -> NoteState {
        let key = (note.board.clone(), note.key.clone());
        let before = match &note.value {
            Some(value) => self.notes.insert(key, (value.clone(), now + note.lifetime)),
            None => self.notes.remove(&key),
        };
        if before.is_some_and(|(_, until)| now < until) { NoteState::Present } else { NoteState::Absent }
    }

    /// Returns the notes of a board that have not expired.
    pub(super) fn notes_on(&self, board: &Board, now: Moment) -> Vec<Note> {
        let notes = self.notes.range((board.clone(), String::new())..).take_while(|((on, _), _)| on == board);
        let notes = notes.filter(|(_, (_, until))| now < *until);
        notes.map(|((_, key), (value, _))| Note { key: key.clone(), value: value.clone() }).collect()
    }
}

fn blank() -> Record {
    Record::new(None, Token::ZERO, Duration::from_secs(15))
}
