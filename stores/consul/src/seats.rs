//! Seats: read, written on condition, kept and forgotten.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::{
    Clock, Identity, Incarnation, Life, Reading, Record, Seat, SeatName, StoreError, Swap, Token, Version, record,
};

use crate::client::Client;
use crate::keys::Keys;
use crate::kv::{self, Entry, Op, Outcome};
use crate::sessions::Sessions;
use crate::tree::{Mirror, Tree};

/// What is known of the store's data, and how seats in it are read and written.
pub(crate) struct Seats {
    client: Arc<Client>,
    keys: Keys,
    sessions: Arc<Sessions>,
    mirror: Arc<Mirror>,
    known: Mutex<Option<Known>>,
    /// Which write each seat was last seen to be of.
    latest: Mutex<HashMap<SeatName, u64>>,
    /// The holders that this process has ever written.
    own: Mutex<HashSet<Incarnation>>,
    /// Locked while a write to a seat is under way.
    turns: Mutex<HashMap<SeatName, Arc<tokio::sync::Mutex<()>>>>,
}

/// This life of the data.
#[derive(Clone, Debug)]
struct Known {
    /// Its name: random, written by whoever came first.
    identity: String,
    /// Which write that was.
    index: u64,
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

impl Seats {
    pub(crate) fn new(client: Arc<Client>, keys: Keys, sessions: Arc<Sessions>, mirror: Arc<Mirror>) -> Self {
        Self {
            client,
            keys,
            sessions,
            mirror,
            known: Mutex::default(),
            latest: Mutex::default(),
            own: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    pub(crate) async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        // What we have written ourselves, and given up on, is settled first: each call has a connection of its
        // own, so that it could be applied after this.
        drop(self.turn(seat).lock().await);
        let keys = [self.keys.seat(seat), self.keys.floor(seat), self.keys.identity()];
        let (entries, known) = self.get(&keys).await?;
        let entry = entries.iter().find(|entry| entry.key == keys[0]);
        let floor = match entries.iter().find(|entry| entry.key == keys[1]) {
            Some(floor) => floor.text()?.parse().unwrap_or(0),
            None => 0,
        };
        self.is_now(seat, entry);
        let Some(entry) = entry else {
            // Nobody can tell whether there never was one, or it was deleted. Tokens are not above the
            // number of the write that made them, see `swap`, so this is above all of them.
            let last = kv::last_write(&self.client, &keys[0]).await?;
            self.saw(last);
            let floor = Token::new(floor.max(last));
            return Ok(Reading { seat: None, floor, identity: Some(Identity::new(known.identity)) });
        };
        self.saw(entry.modify_index);
        Ok(Reading {
            seat: Some(self.seat_in(entry, &known.identity)?),
            floor: Token::new(floor),
            identity: Some(Identity::new(known.identity)),
        })
    }

    /// A seat as the mirror has it.
    pub(crate) fn seat_of(&self, entry: &Entry) -> Result<Seat, StoreError> {
        let life = self.lock().as_ref().map(|known| known.identity.clone()).unwrap_or_default();
        self.seat_in(entry, &life)
    }

    /// What an entry says of its seat.
    ///
    /// A plain write (`consul kv put`) changes the record and leaves the lock. If a session of this process has the lock,
    /// and the record names a holder that this process never wrote, that holder has no session: the seat is `Over`. Every
    /// other process sees a living session and waits, so this is the one process that can take the seat again. It is safe
    /// to do so: a process renews only what it won itself, so the named holder cannot lead by this record; and the engine
    /// of this process bids only after the work of its own last term has ended.
    fn seat_in(&self, entry: &Entry, life: &str) -> Result<Seat, StoreError> {
        let record = record::from_json(&entry.text()?)?;
        let is_held = record.holder.as_ref().is_some_and(|holder| {
            let is_written_over = self.sessions.is_own(&entry.session) && !self.own().contains(&holder.incarnation);
            !entry.session.is_empty() && !is_written_over
        });
        let life_of_holder = if is_held { Life::Held } else { Life::Over };
        Ok(Seat { record, version: Mark::of(entry, life).version(), life: life_of_holder })
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
    /// - *The life of the data.* The key of its name, which is random, must still be there: what was read from
    ///   a cluster that has been made anew since is no reason to write. The number of the write that named it
    ///   would not do, as it can be the same in another life.
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
    pub(crate) async fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
        clock: &Clock,
    ) -> Result<Swap, StoreError> {
        let expected = match expected.map(Mark::parse) {
            Some(None) => return Ok(Swap::Lost),
            Some(mark) => mark,
            None => None,
        };
        let known = self.known().await?;
        if expected.as_ref().is_some_and(|mark| mark.life != known.identity) {
            return Ok(Swap::Lost);
        }
        let holder = expected.as_ref().and_then(|mark| mark.session.as_deref());
        if holder.is_some_and(|holder| !self.sessions.is_own(holder)) {
            return Ok(Swap::Lost);
        }
        let session = match next.is_vacant() {
            true => None,
            false => Some(self.sessions.fresh(next.lease, next.lease / 2, clock).await?),
        };
        self.own().extend(next.holder.as_ref().map(|holder| holder.incarnation));
        let since = session.as_ref().map(|session| session.renewed());
        let (key, json) = (self.keys.seat(seat), record::to_json(next));
        let mut ops = vec![Op::check_index(self.keys.life(&known.identity), known.index)];
        ops.push(match &expected {
            None => Op::check_not_exists(&key),
            Some(mark) => Op::check_index(&key, mark.index),
        });
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
        // Dropped up to here, nothing is sent; from here on it is run to its end.
        let (turn, client, within) = (self.turn(seat).lock_owned().await, self.client.clone(), next.lease / 5);
        let task = tokio::spawn(async move {
            let _turn = turn;
            let late = |_| Err(StoreError::unknown("Consul has not answered in time"));
            tokio::time::timeout(within, kv::transact(&client, ops)).await.unwrap_or_else(late)
        });
        let cut_off = |error| Err(StoreError::unknown("the write was cut off").because(error));
        let written = match task.await.unwrap_or_else(cut_off)? {
            Outcome::Done(entries) => entries.into_iter().rfind(|entry| entry.key == key),
            Outcome::Unmet(unmet) => {
                let is_over = kv::is_session_over(&self.client, &unmet)?;
                if let Some(session) = session.filter(|_| is_over) {
                    session.end();
                }
                return Ok(Swap::Lost);
            }
        };
        let written = written.ok_or_else(|| StoreError::unknown("Consul does not say which write that was"))?;
        self.saw(written.modify_index);
        self.is_now(seat, Some(&written));
        let version = Mark::of(&written, &known.identity).version();
        Ok(Swap::Done { version, since, granted: session.map(|session| session.lease) })
    }

    /// Keeps a seat by the heartbeat that all seats share.
    ///
    /// # Correctness
    /// `Done` says that the session was renewed, and that after the renewal was sent the seat was as it was
    /// when it was won: by the number of its last write, so it names the same holder and term, and locked by
    /// this very session. See [`Session`](crate::session::Session) for how both are known.
    pub(crate) async fn renew(&self, seat: &SeatName, held: &Version, clock: &Clock) -> Result<Swap, StoreError> {
        let Some(mark) = Mark::parse(held) else {
            // Nothing of ours looks like that; whether there is a store at all is still to be told.
            self.known().await?;
            return Ok(Swap::Lost);
        };
        if self.latest().get(seat).is_some_and(|latest| *latest > mark.index) {
            return Ok(Swap::Lost);
        }
        let session = mark.session.as_deref().and_then(|session| self.sessions.alive(session));
        let Some(session) = session else { return Ok(Swap::Lost) };
        let (key, began) = (self.keys.seat(seat), clock.now());
        let is_it = |tree: &Tree| {
            let entry = tree.get(&key);
            entry.is_some_and(|entry| Some(&entry.session) == mark.session.as_ref() && entry.modify_index == mark.index)
        };
        // One that has been sent a while ago will do, unless there is reason to doubt it.
        let is_doubtful = self.mirror.tree().is_some_and(|tree| tree.index >= mark.index && !is_it(&tree));
        let mut from = if is_doubtful { began } else { began - session.lease / 4 };
        loop {
            let beat = match session.beat(from).await {
                Err(_) if session.is_over() => return Ok(Swap::Lost),
                answer => answer?,
            };
            if is_it(&beat.tree) {
                return Ok(Swap::Done { version: held.clone(), since: Some(beat.sent), granted: Some(session.lease) });
            }
            if beat.sent >= began {
                return Ok(Swap::Lost);
            }
            // It may be older than the seat.
            from = began;
        }
    }

    /// Removes a seat and its requests. Its token stays.
    pub(crate) async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let keys = [self.keys.seat(seat), self.keys.floor(seat), self.keys.identity()];
        let (entries, _) = self.get(&keys).await?;
        let mut ops = Vec::new();
        if let Some(entry) = entries.iter().find(|entry| entry.key == keys[0]) {
            ops.push(Op::check_index(&keys[0], entry.modify_index));
            // A record that cannot be read has no token to keep, and above the highest there is none.
            let record = entry.text().and_then(|text| record::from_json(&text));
            if let Some(token) = record.ok().map(|record| record.token).filter(|token| *token < Token::MAX) {
                ops.push(Op::set(&keys[1], &token.get().to_string()));
            }
        }
        ops.push(Op::delete_tree(self.keys.seat_folder(seat)));
        match kv::transact(&self.client, ops).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Unmet(unmet) => {
                kv::is_session_over(&self.client, &unmet)?;
                Err(StoreError::refused("the seat was just written: try again"))
            }
        }
    }

    /// The life of the data.
    async fn known(&self) -> Result<Known, StoreError> {
        if let Some(known) = self.lock().clone() {
            return Ok(known);
        }
        Ok(self.get(&[self.keys.identity()]).await?.1)
    }

    /// Reads keys, the last of which names the life of the data. Written, if it is not there yet.
    async fn get(&self, keys: &[String]) -> Result<(Vec<Entry>, Known), StoreError> {
        let key = self.keys.identity();
        if self.client.is_narrowed() && self.lock().is_none() {
            // A server without namespaces does not mind them in a transaction.
            kv::last_write(&self.client, &key).await?;
        }
        for _ in 0..2 {
            let entries = kv::get(&self.client, keys.iter().cloned()).await?;
            if let Some(identity) = entries.iter().find(|entry| entry.key == key) {
                let known = self.knows(identity.text()?, identity.modify_index);
                return Ok((entries, known));
            }
            self.name_life(&key).await?;
        }
        Err(StoreError::denied(format!(
            "the key {key} is there, but cannot be read: the token needs read on key_prefix \"{}/\", too",
            self.client.prefix()
        )))
    }

    /// Names this life of the data, unless another has just done so. One transaction, so both writes have the
    /// same number.
    async fn name_life(&self, key: &str) -> Result<(), StoreError> {
        let identity = format!("{:032x}", rand::random::<u128>());
        let ops = vec![
            Op::check_not_exists(key),
            Op::set(key, &identity),
            Op::set(self.keys.life(&identity), "this is the one"),
        ];
        match kv::transact(&self.client, ops).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Unmet(unmet) => kv::is_session_over(&self.client, &unmet).map(drop),
        }
    }

    fn knows(&self, identity: String, index: u64) -> Known {
        let mut known = self.lock();
        match known.as_ref().filter(|known| known.identity == identity && known.index == index) {
            Some(known) => known.clone(),
            None => known.insert(Known { identity, index, highest: index }).clone(),
        }
    }

    /// Notes the number of a write.
    fn saw(&self, index: u64) {
        if let Some(known) = self.lock().as_mut() {
            known.highest = known.highest.max(index);
        }
    }

    /// Notes which write a seat is of.
    fn is_now(&self, seat: &SeatName, entry: Option<&Entry>) {
        match entry {
            Some(entry) => self.latest().insert(seat.clone(), entry.modify_index),
            None => self.latest().remove(seat),
        };
    }

    fn turn(&self, seat: &SeatName) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        turns.entry(seat.clone()).or_default().clone()
    }

    fn own(&self) -> MutexGuard<'_, HashSet<Incarnation>> {
        self.own.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn latest(&self) -> MutexGuard<'_, HashMap<SeatName, u64>> {
        self.latest.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
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
