//! Seats: read, written on condition, kept and forgotten.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{
    Answers, Board, Expect, Identity, Incarnation, Life, Moment, Reading, Record, Seat, SeatName, StoreError, Swap,
    Token, Version, Write, record,
};
use tenure_kit::{SharedTask, lock};

use crate::kv::{self, Entry, Op, Outcome};
use crate::store::ConsulStore;
use crate::tree::Tree;

/// The most seats in one read: a transaction reads two keys for each, and the name of this life of the data.
pub(crate) const SEATS: usize = (kv::OPS - 1) / 2;

/// What this process knows of the seats.
#[derive(Default)]
pub(crate) struct Seats {
    known: Mutex<Option<Known>>,
    /// The holders that this process has ever written.
    own: Mutex<HashSet<Incarnation>>,
    writes: Arc<Mutex<Writes>>,
}

#[derive(Default)]
struct Writes {
    /// By their seats, those that are under way.
    underway: HashMap<SeatName, SharedTask<Outcome>>,
    /// When the last one ended.
    ended: Moment,
}

impl Writes {
    fn underway(&self, seat: &SeatName) -> Option<SharedTask<Outcome>> {
        self.underway.get(seat).filter(|write| write.is_running()).cloned()
    }
}

/// This life of the data.
#[derive(Clone, Debug)]
struct Known {
    /// Its name: random, written by the first process.
    identity: String,
    /// The highest number of a write that was seen in it.
    highest: u64,
}

/// A version: which write a seat was last changed by, the session that had locked it then, and the name of
/// this life of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) index: u64,
    pub(crate) session: Option<String>,
    life: String,
}

impl Mark {
    fn of(entry: &Entry, life: &str) -> Self {
        let session = Some(&entry.session).filter(|session| !session.is_empty()).cloned();
        Self { index: entry.modify_index, session, life: life.to_owned() }
    }

    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split('/');
        let mark = Self {
            index: parts.next()?.parse().ok()?,
            session: Some(parts.next()?.to_owned()).filter(|session| session != "-"),
            life: parts.next().filter(|life| !life.is_empty())?.to_owned(),
        };
        parts.next().is_none().then_some(mark)
    }

    fn version(&self) -> Version {
        Version::new(format!("{}/{}/{}", self.index, self.session.as_deref().unwrap_or("-"), self.life))
    }
}

impl ConsulStore {
    /// Reads seats.
    ///
    /// A write that was given up is settled before its seat is read: each call has a connection of its own, so the write
    /// could be applied after the read. The other seats do not wait for it.
    pub(crate) async fn read_seats(&self, seats: &[SeatName], to: &Answers<Reading>) {
        let settled = seats.iter().enumerate().map(async |(place, seat)| {
            self.settle(seat).await;
            place
        });
        let together = settled.collect::<FuturesUnordered<_>>().ready_chunks(SEATS);
        let read = together.for_each_concurrent(None, async |places| {
            if let Err(error) = self.look(seats, &places, to).await {
                // Seats that were answered before stay so.
                places.iter().for_each(|place| to.set(*place, Err(error.clone())));
            }
        });
        read.await;
    }

    /// Reads the seats at these places of a call, in one transaction.
    async fn look(&self, seats: &[SeatName], places: &[usize], to: &Answers<Reading>) -> Result<(), StoreError> {
        let keys = places.iter().flat_map(|place| [self.keys.seat(&seats[*place]), self.keys.floor(&seats[*place])]);
        let (entries, known) = self.get(keys.collect()).await?;
        let floor = |place: usize| match entries.get(&self.keys.floor(&seats[place])) {
            Some(floor) => Ok(Token::new(floor.text()?.parse().unwrap_or(0))),
            None => Ok(Token::ZERO),
        };
        let reading = |seat, floor| Reading { seat, floor, identity: Some(Identity::new(known.identity.as_str())) };
        let mut absent = Vec::new();
        for place in places.iter().copied() {
            let Some(entry) = entries.get(&self.keys.seat(&seats[place])) else {
                absent.push(place);
                continue;
            };
            self.saw(entry.modify_index);
            let seat = self.seat_in(entry, &known.identity);
            to.set(place, seat.and_then(|seat| Ok(reading(Some(seat), floor(place)?))));
        }
        // Nobody can tell whether there never was a seat, or it was deleted. Tokens are not above the number of the
        // write that made them, see `swap`, so the number of a later write is above all of them. If there is still no such
        // key, it is the last write to anything; otherwise it is the one that has made the key since.
        if let Some(first) = absent.first() {
            let last = kv::last_write(&self.client, &self.keys.seat(&seats[*first])).await?;
            self.saw(last);
            for place in absent {
                to.set(place, floor(place).map(|floor| reading(None, floor.max(Token::new(last)))));
            }
        }
        Ok(())
    }

    /// What an entry says of its seat.
    ///
    /// A plain write (`consul kv put`) changes the record and leaves the lock. If a session of this process has the lock,
    /// and the record names a holder that this process never wrote, that holder has no session: the seat is `Over`. Every
    /// other process sees a living session and waits, so this is the one process that can take the seat again. It is safe
    /// to do so: a process renews only what it won itself, so the named holder cannot lead by this record; and the engine
    /// of this process bids only after the work of its own last term has ended.
    fn seat_in(&self, entry: &Entry, life: &str) -> Result<Seat, StoreError> {
        let record = entry.record()?;
        let is_held = record.holder.as_ref().is_some_and(|holder| {
            let is_written_over =
                self.sessions.is_own(&entry.session) && !lock(&self.seats.own).contains(&holder.incarnation);
            !entry.session.is_empty() && !is_written_over
        });
        let life_of_holder = if is_held { Life::Held } else { Life::Over };
        Ok(Seat { record, version: Mark::of(entry, life).version(), life: life_of_holder })
    }

    pub(crate) async fn write_seat(&self, Write { seat, expect, record }: &Write) -> Result<Swap, StoreError> {
        let version = match expect {
            Expect::Absent(_) => return self.swap(seat, expect, None, record).await,
            Expect::Version(version) | Expect::Held(version) => version,
        };
        let Some(mark) = Mark::parse(version) else {
            // No version of ours looks like that; whether there is a store at all is still to be told.
            return self.known().await.map(|_| Swap::Lost);
        };
        match expect {
            Expect::Held(_) => self.renew(seat, &mark, record).await,
            _ => self.swap(seat, expect, Some(&mark), record).await,
        }
    }

    /// Writes a seat, if it has the expected version and no living session but one of ours has locked it.
    ///
    /// # Correctness
    /// One transaction, which Consul applies as one entry of its log, or not at all:
    ///
    /// - *The version.* `check-index` holds if the last write to the key is the one that was read, and
    ///   `check-not-exists` if there is no key. The end of a session counts as a write to the keys that it had
    ///   locked, so an unchanged number also means: locked by the same session, or by none, as it was read.
    /// - *The lock.* `lock` holds if no session has locked the key, or the very one that it is to be locked
    ///   with; and that must live, by the same entry of the log. So no seat is won from a living session or on
    ///   one that is over. Consul's locks do not keep anybody from a plain `set`: it is used only for a seat
    ///   that no session had locked when it was read, and, by the version, none has since.
    /// - *The life of the data.* The key of its name, which is random, must still be there, or `get` fails: what was
    ///   read from a cluster that has been made anew since is no reason to write.
    ///
    /// The leader counts from the send of the last renewal that was answered: Consul keeps the session for
    /// its time from then at the least. If our process, the connection or the server stops in between, the
    /// transaction was applied or not; the engine reads, which waits for what is under way, and finds the seat
    /// ours and held, or as it was.
    ///
    /// *Tokens.* The bid's token is at the most one above all numbers of writes that were seen, and the write's
    /// own number is above those, too. So no token is above the number of its write, and the number of a later
    /// one, such as the deletion of the seat, is a floor. Where a token is above that, having been minted
    /// elsewhere, a floor is written with it.
    async fn swap(
        &self,
        seat: &SeatName,
        expect: &Expect,
        expected: Option<&Mark>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let known = self.known().await?;
        let holder = expected.and_then(|mark| mark.session.as_deref());
        if expected.is_some_and(|mark| mark.life != known.identity)
            || expect.is_absent_elsewhere(&known.identity)
            || holder.is_some_and(|holder| !self.sessions.is_own(holder))
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
        let unchanged = match expected {
            None => Op::check_not_exists(&key),
            Some(mark) => Op::check_index(&key, mark.index),
        };
        let mut ops = vec![Op::get(self.keys.life(&known.identity)), unchanged];
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
        let written = match self.send(seat, ops, next.lease / 5).await? {
            Outcome::Done(entries) => entries.into_iter().rfind(|entry| entry.key == key),
            Outcome::Unmet => return Ok(Swap::Lost),
            Outcome::SessionOver => {
                session.iter().for_each(|session| session.end());
                return Ok(Swap::Lost);
            }
        };
        let written = written.ok_or_else(|| StoreError::unknown("Consul does not say which write that was"))?;
        self.saw(written.modify_index);
        let version = Mark::of(&written, &known.identity).version();
        Ok(Swap::Done { version, since, granted: session.map(|session| session.lease) })
    }

    /// Sends a write, once no other one to this seat is under way. It runs to its end, also if this is dropped, and reads
    /// of its seat wait for it.
    async fn send(&self, seat: &SeatName, ops: Vec<Op>, within: Duration) -> Result<Outcome, StoreError> {
        let write = loop {
            // Dropped up to here, nothing is sent.
            self.settle(seat).await;
            let mut writes = lock(&self.seats.writes);
            if writes.underway(seat).is_none() {
                let write = self.begin(seat.clone(), ops, within);
                writes.underway.insert(seat.clone(), write.clone());
                break write;
            }
        };
        write.wait(StoreError::unknown("the write was cut off")).await
    }

    fn begin(&self, seat: SeatName, ops: Vec<Op>, within: Duration) -> SharedTask<Outcome> {
        let (client, mirror, writes) = (self.client.clone(), self.mirror.clone(), self.seats.writes.clone());
        SharedTask::start(async move {
            let late = |_| Err(StoreError::unknown("Consul has not answered in time"));
            let outcome = tokio::time::timeout(within, kv::transact(&client, ops)).await.unwrap_or_else(late);
            let mut writes = lock(&writes);
            writes.ended = mirror.now();
            writes.underway.remove(&seat);
            outcome
        })
    }

    /// Waits until no write to a seat is under way.
    async fn settle(&self, seat: &SeatName) {
        let underway = || lock(&self.seats.writes).underway(seat);
        while let Some(write) = underway() {
            let _ = write.wait(StoreError::unknown("the write was cut off")).await;
        }
    }

    /// Keeps a seat by the heartbeat that all seats share.
    ///
    /// # Correctness
    /// `Done` says that the session was renewed, and that after the renewal was sent the seat named this holder and
    /// term, and was locked by this very session: see [`Session`](crate::session::Session) for how both are known. A
    /// heartbeat that was sent a while ago will do, as the leader counts from its send; but not one from before the last
    /// write of this process, which may have been a release.
    async fn renew(&self, seat: &SeatName, mark: &Mark, record: &Record) -> Result<Swap, StoreError> {
        let Some(session) = mark.session.as_deref().and_then(|session| self.sessions.find(session)) else {
            return Ok(Swap::Lost);
        };
        let key = self.keys.seat(seat);
        let kept = |tree: &Tree| {
            let entry = tree.get(&key).filter(|entry| entry.session == session.id)?;
            (names(&entry.record().ok()?) == names(record)).then(|| Mark::of(entry, &mark.life).version())
        };
        let from = (self.mirror.now() - session.lease / 4).max(lock(&self.seats.writes).ended);
        let beat = match session.beat(|beat| beat.sent >= from && kept(&beat.report).is_some()).await {
            Err(_) if session.is_over() => return Ok(Swap::Lost),
            answer => answer?,
        };
        let done = |version| Swap::Done { version, since: Some(beat.sent), granted: Some(session.lease) };
        Ok(kept(&beat.report).map_or(Swap::Lost, done))
    }

    /// Removes a seat and its notes. Its token stays.
    pub(crate) async fn forget_seat(&self, seat: &SeatName) -> Result<(), StoreError> {
        let [key, floor] = [self.keys.seat(seat), self.keys.floor(seat)];
        let (entries, _) = self.get(vec![key.clone()]).await?;
        let mut ops = Vec::new();
        if let Some(entry) = entries.get(&key) {
            ops.push(Op::check_index(&key, entry.modify_index));
            // A record that cannot be read has no token to keep, and above the highest there is none.
            if let Some(token) = entry.record().ok().map(|record| record.token).filter(|token| *token < Token::MAX) {
                ops.push(Op::set(floor, &token.get().to_string()));
            }
        }
        ops.push(Op::delete_tree(self.keys.seat_folder(seat)));
        ops.push(Op::delete_tree(self.keys.board(&Board::Candidates(seat.clone()))));
        kv::transact(&self.client, ops).await?.or("the seat was just written: try again").map(drop)
    }

    /// The life of the data.
    async fn known(&self) -> Result<Known, StoreError> {
        let known = lock(&self.seats.known).clone();
        match known {
            Some(known) => Ok(known),
            None => Ok(self.get(Vec::new()).await?.1),
        }
    }

    /// Reads keys, and the name of this life of the data. It is written, if it is not there yet.
    async fn get(&self, keys: Vec<String>) -> Result<(BTreeMap<String, Entry>, Known), StoreError> {
        let identity = self.keys.identity();
        if self.client.is_narrowed() && lock(&self.seats.known).is_none() {
            // A server without namespaces does not mind them in a transaction.
            kv::last_write(&self.client, &identity).await?;
        }
        for _ in 0..2 {
            let entries = kv::get(&self.client, keys.iter().chain([&identity]).cloned()).await?;
            if let Some(name) = entries.get(&identity) {
                let known = self.knows(name.text()?, name.modify_index);
                return Ok((entries, known));
            }
            self.name_life(&identity).await?;
        }
        Err(StoreError::denied(format!(
            "the key {identity} is there, but cannot be read: the token needs read on key_prefix \"{}/\", too",
            self.client.prefix
        )))
    }

    /// Names this life of the data, unless another process has just done so.
    async fn name_life(&self, key: &str) -> Result<(), StoreError> {
        let identity = format!("{:032x}", rand::random::<u128>());
        let life = Op::set(self.keys.life(&identity), "this is the one");
        let ops = vec![Op::check_not_exists(key), Op::set(key, &identity), life];
        kv::transact(&self.client, ops).await.map(drop)
    }

    fn knows(&self, identity: String, index: u64) -> Known {
        let mut known = lock(&self.seats.known);
        let same = known.take().filter(|known| known.identity == identity);
        known.insert(same.unwrap_or(Known { identity, highest: index })).clone()
    }

    /// Notes the number of a write.
    fn saw(&self, index: u64) {
        if let Some(known) = lock(&self.seats.known).as_mut() {
            known.highest = known.highest.max(index);
        }
    }
}

/// The holder and term that a record names.
pub(crate) fn names(record: &Record) -> (Option<Incarnation>, Token) {
    (record.holder.as_ref().map(|holder| holder.incarnation), record.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_back_and_others_are_not_taken_for_ours() {
        for session in [None, Some("1dad877d-0e3b".to_owned())] {
            let mark = Mark { index: 7, session, life: "5f0c".to_owned() };
            assert_eq!(Mark::parse(&mark.version()), Some(mark.clone()));
        }
        for text in ["", "1", "1/-", "x/-/1", "1/-/", "1/-/1/1"] {
            assert_eq!(Mark::parse(&Version::new(text)), None, "{text}");
        }
    }
}
