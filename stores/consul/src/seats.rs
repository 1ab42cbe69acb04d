//! Seats: how they are read, written on condition, renewed and removed.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{
    Answers, Board, DataIdentity, Expect, Incarnation, Life, Reading, Record, Release, Seat, SeatName, SessionId,
    StoreError, Swap, Token, Version, Write, record,
};
use tenure_kit::{PendingWrites, PooledSession, lock};

use crate::kv::{self, Entry, Op, Outcome};
use crate::session::Session;
use crate::store::ConsulStore;
use crate::tree::Tree;

/// The maximum number of seats in one read: a transaction reads two keys for each, and the identity of the data.
pub(crate) const SEATS: usize = (kv::OPS - 1) / 2;

/// What this process knows about the seats.
#[derive(Default)]
pub(crate) struct Seats {
    known: Mutex<Option<Known>>,
    /// The floors of seats that have one, and the index of the last write of each, until no election uses the seat.
    pub(crate) floors: Mutex<BTreeMap<SeatName, (Token, u64)>>,
    /// The incarnations that this process has ever written as holders.
    own: Mutex<HashSet<Incarnation>>,
    pending: PendingWrites,
}

/// The identity of the data, and how far it has come.
#[derive(Clone, Debug)]
struct Known {
    /// A random name, written by the first process.
    identity: String,
    /// The highest index of a write that was seen with this identity.
    highest: u64,
}

/// The parts of a version: the index of the seat's last write, the identity of the data, and the session that had locked
/// the seat then.
type VersionParts = tenure_kit::VersionParts<u64, String, String>;

/// Returns the session that had locked a seat with this version.
pub(crate) fn session_of(version: &Version) -> Option<SessionId> {
    VersionParts::parse(version)?.session.map(SessionId::new)
}

fn version_of(entry: &Entry, identity: &str) -> Version {
    let session = Some(&entry.session).filter(|session| !session.is_empty()).cloned();
    VersionParts { write: entry.modify_index, identity: identity.to_owned(), session }.version()
}

impl ConsulStore {
    /// Reads seats, each after the pending writes to it: each call has a connection of its own, so a write whose call was
    /// dropped could otherwise be applied after the read.
    pub(crate) async fn read_seats(&self, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let read = async |seats: Vec<SeatName>, to| self.read_together(&seats, &to).await;
        self.seats.pending.read(seats, to, read).await
    }

    /// Reads seats in one transaction.
    async fn read_together(&self, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let keys = seats.iter().flat_map(|seat| [self.keys.seat(seat), self.keys.floor(seat)]);
        let (entries, known) = self.get(keys.collect()).await?;
        let floor = |place: usize| self.floor_in(&seats[place], entries.get(&self.keys.floor(&seats[place])));
        let reading = |seat, floor| Reading { seat, floor, identity: Some(DataIdentity::new(known.identity.as_str())) };
        let mut absent = Vec::new();
        for (place, name) in seats.iter().enumerate() {
            let Some(entry) = entries.get(&self.keys.seat(name)) else {
                absent.push(place);
                continue;
            };
            self.note_index(entry.modify_index);
            let seat = self.seat_in(entry, &known.identity);
            to.set(place, seat.and_then(|seat| Ok(reading(Some(seat), floor(place)?))));
        }
        // A missing seat may never have existed, or may have been deleted. No token is above the index of its
        // write (see `swap`), so the index of any later write is above all tokens. If the key still does not
        // exist, `last` is the index of the last write to any key; otherwise it is the index of the write that
        // has created the key since.
        if let Some(first) = absent.first() {
            let last = kv::last_write(&self.client, &self.keys.seat(&seats[*first])).await?;
            self.note_index(last);
            for place in absent {
                to.set(place, floor(place).map(|floor| reading(None, floor.max(Token::new(last)))));
            }
        }
        Ok(())
    }

    /// Interprets the entry of a seat's floor, and remembers it for the next bid.
    pub(crate) fn floor_in(&self, seat: &SeatName, entry: Option<&Entry>) -> Result<Token, StoreError> {
        let mut floors = lock(&self.seats.floors);
        floors.remove(seat);
        let Some(entry) = entry else { return Ok(Token::ZERO) };
        let floor = Token::new(entry.text()?.parse().unwrap_or(0));
        floors.insert(seat.clone(), (floor, entry.modify_index));
        Ok(floor)
    }

    /// Returns the release that the entry of a seat shows, if the seat is vacant.
    ///
    /// The watch does not read the identity of the data. A release is said to be of the data that this process knows, and
    /// a bid that rests on it is lost if that data is gone.
    pub(crate) fn release_in(&self, entry: &Entry) -> Option<Release> {
        let record = entry.record().ok().filter(Record::is_vacant)?;
        let identity = lock(&self.seats.known).as_ref()?.identity.clone();
        self.note_index(entry.modify_index);
        let version = version_of(entry, &identity);
        Some(Release { record, version, identity: Some(DataIdentity::new(identity)) })
    }

    /// Interprets the entry of a seat.
    ///
    /// A plain write (`consul kv put`) changes the record and leaves the lock. If a session of this process has
    /// the lock, and the record names a holder that this process never wrote, that holder has no session: the
    /// seat is `Over`. Every other process sees a live session and waits, so only this process can take the seat
    /// again. This is safe. A process renews only seats that it won itself, so the named holder cannot lead by
    /// this record. And the engine of this process bids only after the work of its own last term has ended.
    fn seat_in(&self, entry: &Entry, identity: &str) -> Result<Seat, StoreError> {
        let record = entry.record()?;
        let is_held = record.holder.as_ref().is_some_and(|holder| {
            let is_overwritten =
                self.sessions.is_own(&entry.session) && !lock(&self.seats.own).contains(&holder.incarnation);
            !entry.session.is_empty() && !is_overwritten
        });
        let life = if is_held { Life::Held } else { Life::Over };
        Ok(Seat { record, version: version_of(entry, identity), life })
    }

    pub(crate) async fn write_seat(&self, Write { seat, expect, record }: &Write) -> Result<Swap, StoreError> {
        let Some(version) = expect.version() else { return self.swap(seat, expect, None, record).await };
        let Some(parts) = VersionParts::parse(version) else {
            // This store never returns such a version. The answer still requires that a server can be reached.
            return self.known().await.map(|_| Swap::Lost);
        };
        match expect {
            Expect::Held(_) => self.renew(seat, &parts, record).await,
            _ => self.swap(seat, expect, Some(&parts), record).await,
        }
    }

    /// Writes a seat, if it has the expected version and no live session of another process has locked it.
    ///
    /// # Correctness
    /// The write is one transaction, which Consul applies as one entry of its log, or not at all:
    ///
    /// - *The version.* `check-index` holds if the last write to the key is the one that was read, and
    ///   `check-not-exists` holds if the key does not exist. The end of a session counts as a write to the keys
    ///   that it had locked. So an unchanged index also means that the key is locked by the same session as when
    ///   it was read, or by none as then.
    /// - *The lock.* `lock` holds if no session has locked the key, or the same session that is to lock it, and
    ///   if that session is alive as of the same entry of the log. So no seat is won from a live session, or on a
    ///   session that is over. Consul's locks do not prevent a plain `set`. So `set` is used only for a seat that
    ///   no session had locked when it was read, and the version guarantees that none has since.
    /// - *The identity of the data.* The key that contains the identity, which is random, must still exist, or
    ///   `get` fails. So a bid that is based on data from before the cluster was recreated has no effect.
    /// - *The floor* of a seat that does not exist. A removal leaves the token of its seat there. The token must be
    ///   above the floor that was last read, and `check-index` or `check-not-exists` holds if the floor has not
    ///   changed since. So a bid that was sent before the removal, and arrives after it, is lost if a removed term
    ///   had its token or a higher one. Which read it was does not matter. If it is outdated, the bid is lost, and
    ///   the engine reads again.
    ///
    /// *A last will* (`HolderDead`) unlocks the seat with the session of the dead process, whose name was read with the
    /// seat. `unlock` holds only if that session still has the lock. The session itself goes on until its TTL, but no
    /// seat that was unlocked comes back to it.
    ///
    /// The leader counts its lease from the send of the last renewal that was answered: Consul keeps the session
    /// for at least its TTL from then. If the process, the connection or the server stops in between, the
    /// transaction was either applied or not. The engine then reads the seat, after any pending write has ended,
    /// and finds that it holds the seat, or that the seat is as before.
    ///
    /// *Tokens.* The token of a bid is at most one above all indexes that were seen, and the index of the write
    /// is above those as well. So no token is above the index of its write, and the index of any later write,
    /// such as the deletion of the seat, is a floor. If a token is above that because it was minted elsewhere,
    /// the transaction also writes a floor.
    async fn swap(
        &self,
        seat: &SeatName,
        expect: &Expect,
        expected: Option<&VersionParts>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let known = self.known().await?;
        let holder = expected.and_then(|parts| parts.session.as_deref());
        let floor = lock(&self.seats.floors).get(seat).copied();
        let is_dead = matches!(expect, Expect::HolderDead(_)) && next.is_vacant();
        if expected.is_some_and(|parts| parts.identity != known.identity)
            || expect.is_absent_elsewhere(&known.identity)
            || expected.is_none() && floor.is_some_and(|(floor, _)| next.token <= floor)
            || holder.is_some_and(|holder| !self.sessions.is_own(holder) && !is_dead)
        {
            return Ok(Swap::Lost);
        }
        let session = match next.is_vacant() {
            true => None,
            false => Some(self.sessions.fresh(next.lease, next.lease / 2).await?),
        };
        lock(&self.seats.own).extend(next.holder.as_ref().map(|holder| holder.incarnation));
        let since = session.as_ref().map(|session| session.renewed());
        let (key, json) = (self.keys.seat(seat), record::to_json(next));
        let mut ops = vec![Op::get(self.keys.identity_marker(&known.identity))];
        match (expected, floor) {
            (Some(parts), _) => ops.push(Op::check_index(&key, parts.write)),
            (None, Some((_, written))) => {
                ops.extend([Op::check_not_exists(&key), Op::check_index(self.keys.floor(seat), written)]);
            }
            (None, None) => ops.extend([Op::check_not_exists(&key), Op::check_not_exists(self.keys.floor(seat))]),
        }
        match (&session, holder) {
            (Some(session), Some(holder)) if holder != session.id => {
                ops.extend([Op::unlock(&key, &json, holder), Op::lock(&key, &json, &session.id)]);
            }
            (Some(session), _) => ops.push(Op::lock(&key, &json, &session.id)),
            (None, Some(holder)) => ops.push(Op::unlock(&key, &json, holder)),
            (None, None) => ops.push(Op::set(&key, &json)),
        }
        if next.token.get() > known.highest + 1 {
            ops.push(Op::set(self.keys.floor(seat), &next.token.get().to_string()));
        }
        let holder = holder.and_then(|holder| self.sessions.find(holder));
        let outdated = session.iter().cloned().chain(holder).collect();
        let written = match self.send(seat, ops, next.lease / 5, outdated).await? {
            Outcome::Done(entries) => entries.into_iter().rfind(|entry| entry.key == key),
            Outcome::Unmet => return Ok(Swap::Lost),
            Outcome::SessionOver => {
                session.iter().for_each(|session| session.end());
                return Ok(Swap::Lost);
            }
        };
        let written = written.ok_or_else(|| StoreError::unknown("Consul did not return the index of the write"))?;
        self.note_index(written.modify_index);
        let version = version_of(&written, &known.identity);
        Ok(Swap::Done { version, since, granted: session.map(|session| session.lease) })
    }

    /// Sends a write, once no other write to this seat is pending. The write runs to its end even if this is
    /// dropped, and reads of its seat wait for it. It makes the heartbeats of these sessions outdated.
    async fn send(
        &self,
        seat: &SeatName,
        ops: Vec<Op>,
        within: Duration,
        sessions: Vec<Arc<PooledSession<Session>>>,
    ) -> Result<Outcome, StoreError> {
        let client = self.client.clone();
        let write = async move {
            let late = |_| Err(StoreError::unknown("Consul did not answer in time"));
            let outcome = tokio::time::timeout(within, kv::transact(&client, ops)).await.unwrap_or_else(late);
            sessions.iter().for_each(|session| session.outdate());
            outcome
        };
        self.seats.pending.run_alone(seat, write).await
    }

    /// Renews a seat by the heartbeat that all seats share.
    ///
    /// # Correctness
    /// `Done` means that the session was renewed, and that after the send of the renewal the seat named this
    /// holder and term and was locked by this session; see [`Session`](crate::session::Session) for how both are
    /// known. A heartbeat that was sent earlier is good enough, because the leader counts its lease from the
    /// send. But it must not be older than the last write on this session, which may have been a release.
    async fn renew(&self, seat: &SeatName, parts: &VersionParts, record: &Record) -> Result<Swap, StoreError> {
        let Some(session) = parts.session.as_deref().and_then(|session| self.sessions.find(session)) else {
            return Ok(Swap::Lost);
        };
        let key = self.keys.seat(seat);
        let kept = |tree: &Tree| {
            let entry = tree.get(&key).filter(|entry| entry.session == session.id)?;
            (entry.record().ok()?.names() == record.names()).then(|| version_of(entry, &parts.identity))
        };
        let from = self.mirror.now() - session.lease / 4;
        let beat = match session.beat(|beat| beat.sent >= from && kept(&beat.report).is_some()).await {
            Err(_) if session.is_over() => return Ok(Swap::Lost),
            answer => answer?,
        };
        let done = |version| Swap::Done { version, since: Some(beat.sent), granted: Some(session.lease) };
        Ok(kept(&beat.report).map_or(Swap::Lost, done))
    }

    /// Removes a seat and its notes. Keeps its token as a floor.
    pub(crate) async fn forget_seat(&self, seat: &SeatName) -> Result<(), StoreError> {
        let [key, floor] = [self.keys.seat(seat), self.keys.floor(seat)];
        let (entries, _) = self.get(vec![key.clone()]).await?;
        let mut ops = Vec::new();
        if let Some(entry) = entries.get(&key) {
            ops.push(Op::check_index(&key, entry.modify_index));
            // A record that is not readable has no token to keep. A floor at the highest token would leave none
            // for a later term.
            if let Some(token) = entry.record().ok().map(|record| record.token).filter(|token| *token < Token::MAX) {
                ops.push(Op::set(floor, &token.get().to_string()));
            }
        }
        ops.push(Op::delete_tree(self.keys.seat_folder(seat)));
        ops.push(Op::delete_tree(self.keys.board(&Board::Candidates(seat.clone()))));
        kv::transact(&self.client, ops).await?.or("the seat changed while it was being removed; try again").map(drop)
    }

    /// Returns the identity of the data, from memory if this process has read it before.
    async fn known(&self) -> Result<Known, StoreError> {
        let known = lock(&self.seats.known).clone();
        match known {
            Some(known) => Ok(known),
            None => Ok(self.get(Vec::new()).await?.1),
        }
    }

    /// Reads keys, and the identity of the data. Writes an identity if there is none yet.
    async fn get(&self, keys: Vec<String>) -> Result<(BTreeMap<String, Entry>, Known), StoreError> {
        let identity = self.keys.identity();
        if self.client.has_namespace_or_partition() && lock(&self.seats.known).is_none() {
            // A server without namespaces ignores them in a transaction, but rejects them in this call.
            kv::last_write(&self.client, &identity).await?;
        }
        for _ in 0..2 {
            let entries = kv::get(&self.client, keys.iter().chain([&identity]).cloned()).await?;
            if let Some(name) = entries.get(&identity) {
                let known = self.remember(name.text()?, name.modify_index);
                return Ok((entries, known));
            }
            if self.read_only {
                // No candidate has stood yet.
                return Ok((entries, Known { identity: String::new(), highest: 0 }));
            }
            self.create_identity(&identity).await?;
        }
        Err(StoreError::denied(format!(
            "cannot read key {identity}, although it exists; the token also needs read on key_prefix \"{}/\"",
            self.client.prefix
        )))
    }

    /// Writes a new identity of the data, unless another process has just done so.
    async fn create_identity(&self, key: &str) -> Result<(), StoreError> {
        let identity = format!("{:032x}", rand::random::<u128>());
        let marker = Op::set(self.keys.identity_marker(&identity), "this is the one");
        let ops = vec![Op::check_not_exists(key), Op::set(key, &identity), marker];
        kv::transact(&self.client, ops).await.map(drop)
    }

    fn remember(&self, identity: String, index: u64) -> Known {
        let mut known = lock(&self.seats.known);
        let same = known.take().filter(|known| known.identity == identity);
        known.insert(same.unwrap_or(Known { identity, highest: index })).clone()
    }

    /// Remembers the index of a write that was seen.
    fn note_index(&self, index: u64) {
        if let Some(known) = lock(&self.seats.known).as_mut() {
            known.highest = known.highest.max(index);
        }
    }
}
