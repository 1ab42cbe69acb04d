//! Seats: how they are read, and the one write that changes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::{
    Clock, Identity, Life, NoteKind, Reading, Record, Seat, SeatName, StoreError, Swap, Token, Version, record,
};

use crate::keys::Keys;
use crate::line::Line;
use crate::link::Link;
use crate::reads::{Found, Question};
use crate::sessions::Sessions;
use crate::wire::{KeyValue, TxnRequest, created_at, delete, delete_under, get, get_key, put, written_at};

/// Names one write of a seat: the revision that it made in this cluster's data, and the session that the seat
/// is held on since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    cluster: u64,
    pub(crate) revision: i64,
    pub(crate) session: Option<i64>,
}

impl Mark {
    pub(crate) fn version(&self) -> Version {
        let session = self.session.map_or("-".to_owned(), |session| format!("{session:016x}"));
        Version::new(format!("{:x}/{}/{session}", self.cluster, self.revision))
    }

    /// `None` if it is not as we write it: then it never was the version of a seat.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split('/');
        let cluster = u64::from_str_radix(parts.next()?, 16).ok()?;
        let revision = parts.next()?.parse().ok()?;
        let session = match parts.next()? {
            "-" => None,
            session => Some(i64::from_str_radix(session, 16).ok()?),
        };
        Some(Self { cluster, revision, session }).filter(|mark| mark.version() == *version)
    }
}

pub(crate) struct Seats {
    line: Arc<Line>,
    pub(crate) keys: Keys,
    pub(crate) sessions: Arc<Sessions>,
    known: Mutex<HashMap<SeatName, Known>>,
}

/// What was last read of a seat.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// There was none, in this cluster.
    Absent(u64),
    /// It was held on this session.
    Held(i64),
    Vacant,
}

/// Who reads: a call that is given up when it takes too long, or a watch that is dropped at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    Call,
    Watch,
}

/// A reading, and what else was seen with it, at one moment.
pub(crate) struct Glance {
    pub(crate) reading: Reading,
    pub(crate) session: Option<i64>,
    pub(crate) requested: bool,
    /// How far the data had come.
    pub(crate) revision: i64,
}

impl Seats {
    pub(crate) fn new(line: Arc<Line>, keys: Keys, sessions: Arc<Sessions>) -> Self {
        Self { line, keys, sessions, known: Mutex::default() }
    }

    pub(crate) async fn link(&self) -> Result<Arc<Link>, StoreError> {
        self.line.link().await
    }

    /// Reads a seat, its floor, whether its holder's session lives, and whether requests lie on its board: one
    /// transaction, so all of one moment, confirmed by a majority. Which session to look at is guessed, as it
    /// rarely changes; a wrong guess costs a second transaction.
    pub(crate) async fn read(&self, link: &Arc<Link>, seat: &SeatName, reader: Reader) -> Result<Glance, StoreError> {
        let mut guess = match self.known().get(seat) {
            Some(Known::Held(session)) => Some(*session),
            _ => None,
        };
        // Somebody would have to win it again and again in between.
        for _ in 0..5 {
            let question = Question {
                seat: self.keys.seat(seat),
                floor: self.keys.floor(seat),
                requests: self.keys.board(seat, NoteKind::Request),
                live: guess.map(|session| self.keys.live(session)),
            };
            let doubt = matches!(reader, Reader::Call).then(|| link.doubt_if_dropped());
            let found = link.read(question).await;
            std::mem::forget(doubt);
            let found = found?;
            let written = found.seat.as_ref().map(Written::of).transpose()?;
            let session = written.as_ref().and_then(|written| written.session);
            self.remember(seat, written.as_ref(), found.cluster);
            if session.is_none() || session == guess {
                return Ok(glance(&found, written));
            }
            guess = session;
        }
        Err(StoreError::refused("the seat changes hands faster than it can be read"))
    }

    fn remember(&self, seat: &SeatName, written: Option<&Written>, cluster: u64) {
        let known = match written.map(|written| written.session) {
            None => Known::Absent(cluster),
            Some(Some(session)) => Known::Held(session),
            Some(None) => Known::Vacant,
        };
        self.known().insert(seat.clone(), known);
    }

    /// Writes a seat, if it is as expected.
    ///
    /// # Correctness
    /// One transaction compares and writes, and etcd runs it as a whole or not at all, after a majority has it
    /// on disk; nothing comes in between. It may be sent together with those of other seats: see `writes.rs`.
    ///
    /// - *The seat is as it was read*: it was last written in the expected revision. Revisions are never given
    ///   twice, and a key that is not there has revision zero, so a seat that was deleted, or made anew, is
    ///   another one.
    /// - *Its holder is gone*: the key of the session that it was won on is not there. Which session that is
    ///   belongs to the write with that revision, so it cannot have changed. The key is made once, before any
    ///   seat names its session, and never again: once it is gone, no seat is ever held on that session. Our own
    ///   sessions do not keep us out; whoever leads in this process is the engine's business.
    /// - *We live*: the key of our own session is there, made when we made it. So a bid that arrives after our
    ///   lease was over, however long it was under way, changes nothing.
    ///
    /// If the answer is lost, the seat names our session or it does not, which a reading tells. What is given up
    /// may still arrive later: then the seat is as expected, and it counts, or it is not, and nothing happens.
    ///
    /// The new token is above the floor that was read, which is the data's revision. The write makes a later
    /// revision. Where the token is above that one, too, as after bids whose outcome is not known, the write also
    /// sets the floor; so whatever becomes of the seat, every later reading gives a floor that is no lower.
    pub(crate) async fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
        clock: Clock,
    ) -> Result<Swap, StoreError> {
        let expected = match expected.map(Mark::parse) {
            Some(None) => return Ok(Swap::Lost),
            Some(mark) => mark,
            None => None,
        };
        let session = if next.is_vacant() { None } else { Some(self.sessions.session(next.lease, clock).await?) };
        let link = self.line.link().await?;
        let read_in = match &expected {
            Some(mark) => Some(mark.cluster),
            None => match self.known().get(seat) {
                Some(Known::Absent(cluster)) => Some(*cluster),
                _ => None,
            },
        };
        if read_in.is_some_and(|cluster| cluster != link.cluster) {
            return Ok(Swap::Lost);
        }
        let (key, revision) = (self.keys.seat(seat), expected.as_ref().map_or(0, |mark| mark.revision));
        let mut compare = vec![written_at(&key, revision)];
        let mut failure = vec![get_key(&key)];
        if let Some(holder) = expected.as_ref().and_then(|mark| mark.session)
            && !self.sessions.is_own(holder)
        {
            compare.push(created_at(&self.keys.live(holder), 0));
        }
        if let Some(session) = &session {
            session.freshen();
            compare.push(created_at(&session.live_key, session.created));
            failure.push(get_key(&session.live_key));
        }
        let id = session.as_ref().map(|session| session.id);
        let mut success = vec![put(&key, Written::text(id, next), 0)];
        let covered = u64::try_from(link.revision() + 1).unwrap_or(0);
        if next.token.get() > covered {
            success.push(put(&self.keys.floor(seat), next.token.to_string(), 0));
        }
        let mut answer = link.write(key, TxnRequest { compare, success, failure }).await?;
        if !answer.succeeded {
            if let Some(session) = session
                .filter(|session| answer.found(1).first().is_none_or(|live| live.create_revision != session.created))
            {
                session.end();
            }
            return Ok(Swap::Lost);
        }
        let mark = Mark { cluster: answer.cluster(), revision: answer.revision(), session: id };
        self.known().insert(seat.clone(), id.map_or(Known::Vacant, Known::Held));
        if let Some(before) = expected.and_then(|mark| mark.session).and_then(|before| self.sessions.alive(before)) {
            before.let_go(seat);
        }
        let (since, granted) = match &session {
            Some(session) => {
                session.won(seat, mark.revision);
                (Some(session.proven()), Some(session.granted))
            }
            None => (None, None),
        };
        Ok(Swap::Done { version: mark.version(), since, granted })
    }

    pub(crate) async fn renew(&self, seat: &SeatName, held: &Version) -> Result<Swap, StoreError> {
        let Some(mark) = Mark::parse(held) else { return self.denied_or_lost().await };
        match mark.session.and_then(|session| self.sessions.alive(session)) {
            Some(session) => session.renew(seat, held, &mark).await,
            None => self.denied_or_lost().await,
        }
    }

    /// That a seat is lost is an answer of the server's: where there is none, that is told.
    async fn denied_or_lost(&self) -> Result<Swap, StoreError> {
        self.line.link().await.map(|_| Swap::Lost)
    }

    /// Removes a seat and its board. What its tokens must stay above is kept, unless the data's revision says as
    /// much by itself.
    pub(crate) async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let link = self.line.link().await?;
        let (key, floor_key) = (self.keys.seat(seat), self.keys.floor(seat));
        let ask = vec![get(&key), get(&floor_key)];
        let mut answer = link.txn(TxnRequest { success: ask, ..Default::default() }).await?;
        let (found, floor) = (answer.found(0).pop(), answer.found(1).pop());
        let token = found.as_ref().and_then(|found| Written::of(found).ok()).map_or(0, |it| it.record.token.get());
        // Above the highest token there is none.
        let token = if token < Token::MAX.get() { token } else { 0 };
        let last = floor.as_ref().map_or(0, number).max(token);
        let revision = |kv: &Option<KeyValue>| kv.as_ref().map_or(0, |kv| kv.mod_revision);
        let keep = if last > u64::try_from(answer.revision()).unwrap_or(0) {
            put(&floor_key, last.to_string(), 0)
        } else {
            delete(&floor_key)
        };
        let boards = [NoteKind::Request, NoteKind::Announcement].map(|kind| delete_under(&self.keys.board(seat, kind)));
        let answer = link
            .txn(TxnRequest {
                compare: vec![written_at(&key, revision(&found)), written_at(&floor_key, revision(&floor))],
                success: [delete(&key), keep].into_iter().chain(boards).collect(),
                failure: Vec::new(),
            })
            .await?;
        if answer.succeeded { Ok(()) } else { Err(StoreError::refused("the seat has changed meanwhile: try again")) }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SeatName, Known>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn glance(found: &Found, written: Option<Written>) -> Glance {
    let Found { cluster, revision, .. } = *found;
    let floor = found.floor.as_ref().map_or(0, number).max(revision.try_into().unwrap_or(0));
    let session = written.as_ref().and_then(|written| written.session);
    let seat = written.map(|written| Seat {
        version: Mark { cluster, revision: written.revision, session }.version(),
        record: written.record,
        life: if session.is_some() && found.lives { Life::Held } else { Life::Over },
    });
    let identity = Some(Identity::new(format!("{cluster:x}")));
    Glance {
        reading: Reading { seat, floor: Token::new(floor), identity },
        session,
        requested: found.requests > 0,
        revision,
    }
}

/// What stands in a seat's key: its session in a line of its own, `-` for none, then the record.
struct Written {
    session: Option<i64>,
    record: Record,
    revision: i64,
}

impl Written {
    fn of(found: &KeyValue) -> Result<Self, StoreError> {
        let foreign = || {
            let key = String::from_utf8_lossy(&found.key);
            StoreError::denied(format!("the key {key} holds something that Tenure did not write: use another prefix"))
        };
        let text = std::str::from_utf8(&found.value).map_err(|_| foreign())?;
        let (session, json) = text.split_once('\n').ok_or_else(foreign)?;
        let session = match session {
            "-" => None,
            session => Some(i64::from_str_radix(session, 16).map_err(|_| foreign())?),
        };
        let record = record::from_json(json)?;
        // A record that names no holder is held by nobody, whatever stands before it.
        let session = session.filter(|_| !record.is_vacant());
        Ok(Self { session, record, revision: found.mod_revision })
    }

    fn text(session: Option<i64>, record: &Record) -> String {
        let session = session.map_or("-".to_owned(), |session| format!("{session:016x}"));
        format!("{session}\n{}", record::to_json(record))
    }
}

fn number(kv: &KeyValue) -> u64 {
    std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_its_write_and_its_session() {
        for session in [None, Some(1), Some(i64::MAX)] {
            let mark = Mark { cluster: u64::MAX, revision: 7, session };
            assert_eq!(Mark::parse(&mark.version()), Some(mark));
        }
        for text in ["", "1", "x/1/-", "1/2", "1/2/x", "1/2/-/", "1/2/3/4"] {
            assert_eq!(Mark::parse(&Version::new(text)), None, "{text}");
        }
    }
}
