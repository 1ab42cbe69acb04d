//! Seats: how they are read, and the one transaction that changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tenure_core::{Answers, Board, Expect, Life, Reading, Seat, SeatName, StoreError, Swap, Token, Write};
use tenure_kit::{Connection, Patience, PooledSession, Waiting};

use crate::connection::EtcdConnection;
use crate::keys::WatchedKey;
use crate::lock;
use crate::session::{Session, renew};
use crate::store::EtcdStore;
use crate::version::{Renewal, SeatValue, VersionParts, holder, identity, session_name};
use crate::wire::{
    KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse, created_at, delete, delete_under, get, get_key,
    greater, nested, put, range, under, written_at,
};

/// The number of sessions to remember. Every read has one operation for each session, and a member accepts 128
/// operations per transaction.
const HOLDERS: usize = 60;

/// How many keys a page of the list of seats has: well below the 2 MB that a member sends by default.
const PAGE: u32 = 1000;

/// A write that is not a renewal: its place in the call, and the version that it expects, `None` to create the
/// seat.
type ConditionalWrite<'a> = (usize, &'a Write, Option<VersionParts>);

impl EtcdStore {
    /// Reads seats, their floors, and whether the sessions that hold them are alive.
    ///
    /// # Correctness
    /// A majority confirms every read. The first transaction reads the seats together with the keys of the
    /// sessions that are known to hold seats: there are few of them, and they rarely change. If a seat names
    /// another session, a second transaction reads that session's key, later than the seat. This is as good as
    /// reading both at once, because the key of a session is created before any seat names the session, and never
    /// again. If the key exists, it existed when the seat was read. If it does not, the seat with this version is
    /// free from then on, and a bid for the seat is conditional on the version.
    ///
    /// The read of a seat waits for writes of this process that are in flight, because a member can process two calls of one
    /// connection in any order.
    pub(crate) async fn read_seats(&self, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let read = async |seats: Vec<SeatName>, to| self.read_together(&seats, &to).await;
        self.pending.read(seats, to, read).await
    }

    async fn read_together(&self, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let known: Vec<i64> = lock(&self.holders).iter().copied().collect();
        let each = seats.iter().flat_map(|seat| [get(&self.keys.seat(seat)), get(&self.keys.floor(seat))]);
        let mut answer = connection.txn(TxnRequest::of(each.chain(self.read_live_keys(&known)))).await?;
        let mut lives = BTreeMap::new();
        let (cluster, revision) = (answer.cluster(), answer.revision());
        self.note_liveness(&known, &mut answer, seats.len() * 2, &mut lives);
        let mut later = Vec::new();
        for place in 0..seats.len() {
            let floor = answer.found(place * 2 + 1).first().map_or(0, number).max(revision.try_into().unwrap_or(0));
            let read = Reading { seat: None, floor: Token::new(floor), identity: Some(identity(cluster)) };
            let found = answer.found(place * 2).pop();
            match found.as_ref().map(SeatValue::of).transpose() {
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
            let mut answer = connection.txn(TxnRequest::of(self.read_live_keys(&unknown))).await?;
            self.note_liveness(&unknown, &mut answer, 0, &mut lives);
            for (place, read, written, _) in later {
                to.set(place, Ok(with_seat(read, cluster, written, &lives)));
            }
        }
        Ok(())
    }

    /// Lists all seats by their keys, a page at a time. A name that no election can have is left out.
    pub(crate) async fn list_all(&self) -> Result<Vec<SeatName>, StoreError> {
        let connection = self.connection.get().await?;
        let mut page = RangeRequest { keys_only: true, limit: PAGE.into(), ..under(&self.keys.seats()) };
        let mut seats = Vec::new();
        loop {
            let found = connection.txn(TxnRequest::of([range(page.clone())])).await?.found(0);
            let names = found.iter().filter_map(|found| std::str::from_utf8(&found.key).ok());
            seats.extend(names.filter_map(|key| match self.keys.watched_key(key) {
                Some(WatchedKey::Seat(seat)) => Some(seat),
                _ => None,
            }));
            let is_full = found.len() == PAGE as usize;
            match found.into_iter().next_back() {
                // The next page starts with the first key after the last one.
                Some(last) if is_full => page.key = [last.key, vec![0]].concat(),
                _ => return Ok(seats),
            }
        }
    }

    fn read_live_keys(&self, sessions: &[i64]) -> impl Iterator<Item = RequestOp> {
        sessions.iter().map(|session| get_key(&self.keys.live(*session)))
    }

    /// Records which sessions are alive, by the answers from this place on.
    fn note_liveness(&self, sessions: &[i64], answer: &mut TxnResponse, from: usize, lives: &mut BTreeMap<i64, bool>) {
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

    /// Writes seats: bids and releases in one transaction, renewals by a heartbeat of their session.
    pub(crate) async fn write_seats(&self, lease: Duration, writes: &[Write], to: &Answers<Swap>) {
        let (mut changes, mut renewals, mut lost) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let parts = write.expect.version().and_then(VersionParts::parse);
            let session = match (&write.expect, &parts) {
                (Expect::Absent(_), _) | (Expect::Version(_) | Expect::HolderDead(_), Some(_)) => {
                    changes.push((place, write, parts));
                    continue;
                }
                (Expect::Held(_), Some(parts)) => holder(parts).and_then(|name| self.sessions.find(name.as_str())),
                (_, None) => None,
            };
            match (session, parts) {
                (Some(session), Some(parts)) => {
                    let (_, seats) = renewals.entry(session.id).or_insert_with(|| (session, Vec::new()));
                    seats.push((place, Renewal::new(write, &parts)));
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
        // Tasks that outlive this call do part of the work. If this call is dropped, the connection must become
        // doubtful as if the call had waited for the server itself.
        let connection = self.connection.current();
        let waiting = connection.as_ref().map(|connection| connection.liveness().waiting(Patience::default()));
        join(renewals, changes).await;
        waiting.into_iter().for_each(Waiting::failed);
    }

    /// Writes seats, each on its own condition.
    ///
    /// # Correctness
    /// One transaction compares and writes. etcd runs it as a whole or not at all, after a majority has it on
    /// disk, and runs nothing else in between. It compares four things:
    ///
    /// - *The seat is as it was read*: it was last written in the expected revision. etcd never reuses a
    ///   revision, and a missing key has revision zero, so a seat that was deleted or recreated does not compare
    ///   equal.
    /// - *Its holder is gone*: the key of the session that the seat was won on does not exist. The write with
    ///   that revision determines the session, so it cannot have changed. The key is created once, before any
    ///   seat names its session, and never again: once it is gone, no seat is ever held on that session. This
    ///   condition is left out for sessions of this process, because the engine decides which of its own
    ///   elections leads. It is left out for a last will (`HolderDead`), too: its executor has seen that the holder
    ///   is dead, and the record that it writes is vacant and names no session.
    /// - *The bidder is alive*: the key of the bidder's own session exists, with the revision in which this
    ///   process created it. So a bid that arrives after the bidder's lease has ended changes nothing, however
    ///   long it was in flight.
    /// - *The token of a seat that does not exist is new*: it is above the floor key, if there is one. A removal
    ///   leaves the token of its seat there. So a bid that was sent before the removal, and arrives after it, is lost
    ///   if a removed term had its token or a higher one. A comparison with the value of a missing key is false, so
    ///   the writes are what a nested transaction does if "the floor is not below the token" is false.
    ///
    /// If the answer is lost, a later read shows whether the seat names the bidder's session. A write whose call
    /// was dropped can still arrive: either the seat is as expected, and the write counts, or it is not, and
    /// nothing happens.
    ///
    /// The new token is above the floor that was read, which is at least the revision of the data at that time.
    /// The write itself makes a later revision. If the token is above that revision too, as after bids with
    /// unknown outcomes, the write also sets the floor key. So whatever happens to the seat, every later read
    /// returns a floor that is no lower than the token.
    ///
    /// *Many seats* are operations of one outer transaction without conditions. Each is a nested transaction with
    /// its own conditions and its own answer. etcd evaluates the conditions of all of them on the state before
    /// the first one runs. So a nested transaction that loses changes nothing, and makes no other fail or
    /// succeed. That none sees the effects of another makes no difference: no seat is in a call twice, and none
    /// of them writes the session keys that they also compare. All share one revision. It is later than any
    /// before it, and each key is written only once in it.
    ///
    /// The leader counts its lease from the last keep-alive that was sent, and answered, before this write is
    /// sent.
    ///
    /// Seats in `lost` have a session that is over, or a version that this store never returns. They are answered
    /// with `Lost` only once a server can be reached.
    async fn swap(
        &self,
        lease: Duration,
        changes: &[ConditionalWrite<'_>],
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
        let (mut sent, mut seats, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for (place, write, expected) in changes {
            let is_elsewhere = match expected {
                Some(parts) => parts.identity != connection.cluster,
                None => write.expect.is_absent_elsewhere(identity(connection.cluster).as_str()),
            };
            if is_elsewhere {
                to.set(*place, Ok(Swap::Lost));
                continue;
            }
            let session = session.as_ref().filter(|_| !write.record.is_vacant());
            requests.push(self.request(&connection, write, expected.as_ref(), session));
            sent.push((*place, session));
            seats.push(write.seat.clone());
        }
        if sent.is_empty() {
            return Ok(());
        }
        let (sender, request) = (connection.clone(), TxnRequest::together(requests));
        let write = async move {
            let late = |_| Err(StoreError::unknown(format!("{} did not answer in time", sender.address)));
            tokio::time::timeout(lease / 5, sender.while_open(sender.txn(request))).await.unwrap_or_else(late)
        };
        let answer = self.pending.run(seats, write).await?;
        let (cluster, revision) = (answer.cluster(), answer.revision());
        let mut answers = answer.responses.into_iter();
        for (place, session) in sent {
            let swap = match answers.next().and_then(|answer| answer.txn) {
                Some(answer) if answer.succeeded && is_spent(&answer) => Ok(Swap::Lost),
                Some(answer) if answer.succeeded => {
                    let parts =
                        VersionParts { write: revision, identity: cluster, session: session.map(|session| session.id) };
                    let granted = session.map(|session| session.granted);
                    Ok(Swap::Done { version: parts.version(), since: session.and(since), granted })
                }
                Some(mut answer) => {
                    if let Some(session) = session
                        && answer.found(1).first().is_none_or(|live| live.create_revision != session.created)
                    {
                        session.end();
                    }
                    Ok(Swap::Lost)
                }
                None => Err(StoreError::unknown(format!(
                    "{} did not answer each write of a transaction",
                    connection.address
                ))),
            };
            to.set(place, swap);
        }
        Ok(())
    }

    fn request(
        &self,
        connection: &EtcdConnection,
        write: &Write,
        expected: Option<&VersionParts>,
        session: Option<&Arc<PooledSession<Session>>>,
    ) -> TxnRequest {
        let key = self.keys.seat(&write.seat);
        let mut compare = vec![written_at(&key, expected.map_or(0, |parts| parts.write))];
        let mut failure = vec![get_key(&key)];
        let holder = expected.and_then(|parts| parts.session.zip(holder(parts)));
        let is_dead = matches!(write.expect, Expect::HolderDead(_)) && write.record.is_vacant();
        if let Some((holder, _)) = holder.filter(|(_, name)| !is_dead && !self.sessions.is_own(name.as_str())) {
            compare.push(created_at(&self.keys.live(holder), 0));
        }
        if let Some(session) = session {
            compare.push(created_at(&session.live_key, session.created));
            failure.push(get_key(&session.live_key));
        }
        let mut success = vec![put(&key, SeatValue::text(session.map(|session| session.id), &write.record), 0)];
        let covered = u64::try_from(connection.revision() + 1).unwrap_or(0);
        let (floor_key, token) = (self.keys.floor(&write.seat), write.record.token.get());
        if token > covered {
            success.push(put(&floor_key, floor_value(token), 0));
        }
        if expected.is_none() {
            let is_spent = greater(&floor_key, floor_value(token.saturating_sub(1)));
            success = vec![nested(TxnRequest { compare: vec![is_spent], success: Vec::new(), failure: success })];
        }
        TxnRequest { compare, success, failure }
    }

    /// Removes a seat and its notes. Keeps its token as the floor, although the revision of the data is a floor for later
    /// bids as well: earlier bids can still arrive.
    pub(crate) async fn forget_seat(&self, seat: &SeatName) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let (key, floor_key) = (self.keys.seat(seat), self.keys.floor(seat));
        let mut answer = connection.txn(TxnRequest::of([get(&key), get(&floor_key)])).await?;
        let (found, floor) = (answer.found(0).pop(), answer.found(1).pop());
        let token = found.as_ref().and_then(|found| SeatValue::of(found).ok()).map_or(0, |it| it.record.token.get());
        // A floor at the highest token would leave no token for any later term.
        let token = if token < Token::MAX.get() { token } else { 0 };
        let last = floor.as_ref().map_or(0, number).max(token);
        let revision = |kv: &Option<KeyValue>| kv.as_ref().map_or(0, |kv| kv.mod_revision);
        let keep = if last > 0 { put(&floor_key, floor_value(last), 0) } else { delete(&floor_key) };
        let boards = [Board::Requests(seat.clone()), Board::Candidates(seat.clone())];
        let boards = boards.map(|board| delete_under(&self.keys.board(&board)));
        let answer = connection
            .txn(TxnRequest {
                compare: vec![written_at(&key, revision(&found)), written_at(&floor_key, revision(&floor))],
                success: [delete(&key), keep].into_iter().chain(boards).collect(),
                failure: Vec::new(),
            })
            .await?;
        if answer.succeeded {
            Ok(())
        } else {
            Err(StoreError::refused("the seat changed while it was being removed; try again"))
        }
    }
}

fn with_seat(read: Reading, cluster: u64, written: SeatValue, lives: &BTreeMap<i64, bool>) -> Reading {
    let SeatValue { session, record, revision } = written;
    let is_held = session.is_some_and(|session| lives.get(&session) == Some(&true));
    let version = VersionParts { write: revision, identity: cluster, session }.version();
    let seat = Seat { version, record, life: if is_held { Life::Held } else { Life::Over } };
    Reading { seat: Some(seat), ..read }
}

/// Returns the value of a floor key, with all digits: etcd compares values byte by byte.
fn floor_value(token: u64) -> String {
    format!("{token:020}")
}

/// Returns whether the floor of an absent seat was not below the token of a bid, so that nothing was written.
fn is_spent(answer: &TxnResponse) -> bool {
    answer.responses.iter().any(|answer| answer.txn.as_ref().is_some_and(|floor| floor.succeeded))
}

fn number(kv: &KeyValue) -> u64 {
    std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
