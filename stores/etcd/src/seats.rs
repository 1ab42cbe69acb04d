//! Seats: how they are read, and the one write that changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tenure_core::{Answers, Board, Expect, Identity, Life, Reading, Seat, SeatName, StoreError, Swap, Token, Write};
use tenure_kit::{Connection, Patience, PooledSession, Waiting};

use crate::connection::EtcdConnection;
use crate::lock;
use crate::mark::{Claim, Mark, Written, session_name};
use crate::session::{Session, renew};
use crate::store::EtcdStore;
use crate::wire::{
    KeyValue, RequestOp, TxnRequest, TxnResponse, created_at, delete, delete_under, get, get_key, put, written_at,
};

/// How many sessions are remembered: each is an operation of every reading, and members take 128 of those.
const HOLDERS: usize = 60;

/// A write that is not a renewal: its place in the call, and what it expects, if there is to be a seat.
type Change<'a> = (usize, &'a Write, Option<Mark>);

/// Names the data of a cluster.
fn identity(cluster: u64) -> String {
    format!("{cluster:x}")
}

impl EtcdStore {
    /// Reads seats, their floors, and whether the sessions live that hold them.
    ///
    /// # Correctness
    /// All reads are confirmed by a majority. Which sessions to look at is guessed, as there are few of them and they
    /// rarely change. A seat on another session waits for a second transaction. Its session is then looked at later
    /// than the seat itself, and that is as good: the key of a session is made before any seat names it, and never
    /// again. If it is there, it was there when the seat was read. If it is gone, the seat of this version is free
    /// from then on, and a bid for it is conditional on the version.
    pub(crate) async fn read_seats(&self, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let guesses: Vec<i64> = lock(&self.holders).iter().copied().collect();
        let each = seats.iter().flat_map(|seat| [get(&self.keys.seat(seat)), get(&self.keys.floor(seat))]);
        let mut answer = connection.txn(TxnRequest::of(each.chain(self.lives(&guesses)))).await?;
        let mut lives = BTreeMap::new();
        let (cluster, revision) = (answer.cluster(), answer.revision());
        self.learn(&guesses, &mut answer, seats.len() * 2, &mut lives);
        let mut later = Vec::new();
        for place in 0..seats.len() {
            let floor = answer.found(place * 2 + 1).first().map_or(0, number).max(revision.try_into().unwrap_or(0));
            let read =
                Reading { seat: None, floor: Token::new(floor), identity: Some(Identity::new(identity(cluster))) };
            let found = answer.found(place * 2).pop();
            match found.as_ref().map(Written::of).transpose() {
                Err(error) => to.set(place, Err(error)),
                Ok(None) => to.set(place, Ok(read)),
                Ok(Some(written)) => match written.session {
                    Some(session) if !lives.contains_key(&session) => later.push((place, read, written, session)),
                    _ => to.set(place, Ok(with_seat(read, cluster, written, &lives))),
                },
            }
        }
        if !later.is_empty() {
            let unknown: BTreeSet<i64> = later.iter().map(|(.., session)| *session).collect();
            let unknown: Vec<i64> = unknown.into_iter().collect();
            let mut answer = connection.txn(TxnRequest::of(self.lives(&unknown))).await?;
            self.learn(&unknown, &mut answer, 0, &mut lives);
            for (place, read, written, _) in later {
                to.set(place, Ok(with_seat(read, cluster, written, &lives)));
            }
        }
        Ok(())
    }

    fn lives(&self, sessions: &[i64]) -> impl Iterator<Item = RequestOp> {
        sessions.iter().map(|session| get_key(&self.keys.live(*session)))
    }

    /// Takes in which sessions live, from this place of an answer on.
    fn learn(&self, sessions: &[i64], answer: &mut TxnResponse, from: usize, lives: &mut BTreeMap<i64, bool>) {
        let mut holders = lock(&self.holders);
        for (at, session) in sessions.iter().enumerate() {
            let is_alive = !answer.found(from + at).is_empty();
            lives.insert(*session, is_alive);
            if is_alive {
                if holders.len() >= HOLDERS && !holders.contains(session) {
                    holders.clear();
                }
                holders.insert(*session);
            } else {
                holders.remove(session);
                if let Some(own) = self.sessions.find(session_name(answer.cluster(), *session).as_str()) {
                    own.end();
                }
            }
        }
    }

    /// Writes seats, and renews those that are held.
    pub(crate) async fn write_seats(&self, lease: Duration, writes: &[Write], to: &Answers<Swap>) {
        let (mut changes, mut renewals, mut lost) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let mark = match &write.expect {
                Expect::Absent(_) => None,
                Expect::Version(version) | Expect::Held(version) => Mark::parse(version),
            };
            let session = match (&write.expect, &mark) {
                (Expect::Absent(_), _) | (Expect::Version(_), Some(_)) => {
                    changes.push((place, write, mark));
                    continue;
                }
                (Expect::Held(_), Some(mark)) => mark.session_name().and_then(|name| self.sessions.find(name.as_str())),
                (_, None) => None,
            };
            match (session, mark) {
                (Some(session), Some(mark)) => {
                    let (_, seats) = renewals.entry(session.id).or_insert_with(|| (session, Vec::new()));
                    seats.push((place, Claim::new(write, &mark)));
                }
                _ => lost.push(place),
            }
        }
        let renewals = join_all(renewals.values().map(|(session, seats)| renew(session, seats, to)));
        let changes = async {
            if let Err(error) = self.swap(lease, &changes, &lost, to).await {
                let places = changes.iter().map(|(place, ..)| place).chain(&lost);
                places.for_each(|place| to.set(*place, Err(error.clone())));
            }
        };
        // Tasks that go on for the next call do part of the work. If this call is given up, the connection is doubted as
        // if it had done everything by itself.
        let connection = self.connection.current();
        let waiting = connection.as_ref().map(|connection| connection.liveness().waiting(Patience::default()));
        join(renewals, changes).await;
        waiting.into_iter().for_each(Waiting::failed);
    }

    /// Writes seats, each if it is as expected.
    ///
    /// # Correctness
    /// One transaction compares and writes, and etcd runs it as a whole or not at all, after a majority has it
    /// on disk; nothing comes in between.
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
    ///
    /// *Many seats* go as operations of a transaction that has no conditions: each is still a transaction of its own,
    /// with its own conditions, and has its own answer. etcd first decides on all of them, by how everything was
    /// before the first is run. So one that is lost changes nothing, and neither fails nor helps another. That none
    /// sees what another has done makes no difference: no call has a seat twice, and the keys of sessions, which they
    /// compare as well, are written by none. They share one revision, which is still that of one write for each
    /// key, and later than any before.
    ///
    /// A leader counts from the last keep-alive that was sent, and answered, before the write is sent.
    ///
    /// That a seat is `lost` whose session is over, or that never had such a version, is told once a server is there to
    /// say so.
    async fn swap(
        &self,
        lease: Duration,
        changes: &[Change<'_>],
        lost: &[usize],
        to: &Answers<Swap>,
    ) -> Result<(), StoreError> {
        if changes.is_empty() && lost.is_empty() {
            return Ok(());
        }
        let connection = self.connection.get().await?;
        lost.iter().for_each(|place| to.set(*place, Ok(Swap::Lost)));
        let bids = changes.iter().any(|(_, write, _)| !write.record.is_vacant());
        let session = if bids { Some(self.sessions.fresh(lease, lease / 2).await?) } else { None };
        if let Some(session) = &session {
            session.check_cluster(&connection)?;
        }
        let since = session.as_ref().map(|session| session.renewed());
        let (mut sent, mut requests) = (Vec::new(), Vec::new());
        for (place, write, expected) in changes {
            let is_elsewhere = match expected {
                Some(mark) => mark.cluster != connection.cluster,
                None => write.expect.is_absent_elsewhere(&identity(connection.cluster)),
            };
            if is_elsewhere {
                to.set(*place, Ok(Swap::Lost));
                continue;
            }
            let session = session.as_ref().filter(|_| !write.record.is_vacant());
            requests.push(self.request(&connection, write, expected.as_ref(), session));
            sent.push((*place, session));
        }
        if sent.is_empty() {
            return Ok(());
        }
        let answer = connection.txn(TxnRequest::together(requests)).await?;
        let (cluster, revision) = (answer.cluster(), answer.revision());
        let mut answers = answer.responses.into_iter();
        for (place, session) in sent {
            let swap = match answers.next().and_then(|answer| answer.txn) {
                Some(answer) if answer.succeeded => {
                    let mark = Mark { cluster, revision, session: session.map(|session| session.id) };
                    let granted = session.map(|session| session.granted);
                    Ok(Swap::Done { version: mark.version(), since: session.and(since), granted })
                }
                Some(mut answer) => {
                    if let Some(session) = session
                        && answer.found(1).first().is_none_or(|live| live.create_revision != session.created)
                    {
                        session.end();
                    }
                    Ok(Swap::Lost)
                }
                None => Err(StoreError::unknown(format!("{} does not say what came of it", connection.address))),
            };
            to.set(place, swap);
        }
        Ok(())
    }

    fn request(
        &self,
        connection: &EtcdConnection,
        write: &Write,
        expected: Option<&Mark>,
        session: Option<&Arc<PooledSession<Session>>>,
    ) -> TxnRequest {
        let key = self.keys.seat(&write.seat);
        let mut compare = vec![written_at(&key, expected.map_or(0, |mark| mark.revision))];
        let mut failure = vec![get_key(&key)];
        let holder = expected.and_then(|mark| mark.session.zip(mark.session_name()));
        if let Some((holder, _)) = holder.filter(|(_, name)| !self.sessions.is_own(name.as_str())) {
            compare.push(created_at(&self.keys.live(holder), 0));
        }
        if let Some(session) = session {
            compare.push(created_at(&session.live_key, session.created));
            failure.push(get_key(&session.live_key));
        }
        let mut success = vec![put(&key, Written::text(session.map(|session| session.id), &write.record), 0)];
        let covered = u64::try_from(connection.revision() + 1).unwrap_or(0);
        if write.record.token.get() > covered {
            success.push(put(&self.keys.floor(&write.seat), write.record.token.to_string(), 0));
        }
        TxnRequest { compare, success, failure }
    }

    /// Removes a seat and its notes. What its tokens must stay above is kept, unless the data's revision says as
    /// much by itself.
    pub(crate) async fn forget_seat(&self, seat: &SeatName) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let (key, floor_key) = (self.keys.seat(seat), self.keys.floor(seat));
        let mut answer = connection.txn(TxnRequest::of([get(&key), get(&floor_key)])).await?;
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
        let boards = [Board::Requests(seat.clone()), Board::Candidates(seat.clone())];
        let boards = boards.map(|board| delete_under(&self.keys.board(&board)));
        let answer = connection
            .txn(TxnRequest {
                compare: vec![written_at(&key, revision(&found)), written_at(&floor_key, revision(&floor))],
                success: [delete(&key), keep].into_iter().chain(boards).collect(),
                failure: Vec::new(),
            })
            .await?;
        if answer.succeeded { Ok(()) } else { Err(StoreError::refused("the seat has changed meanwhile: try again")) }
    }
}

fn with_seat(read: Reading, cluster: u64, written: Written, lives: &BTreeMap<i64, bool>) -> Reading {
    let Written { session, record, revision } = written;
    let is_held = session.is_some_and(|session| lives.get(&session) == Some(&true));
    let version = Mark { cluster, revision, session }.version();
    let seat = Seat { version, record, life: if is_held { Life::Held } else { Life::Over } };
    Reading { seat: Some(seat), ..read }
}

fn number(kv: &KeyValue) -> u64 {
    std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
