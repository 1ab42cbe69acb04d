//! The store itself: what the engine asks, in terms of scripts and connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::{Client, Value};
use tenure_core::{
    Board, Change, DynBoard, Identity, Judge, Life, LifeKind, NoteKind, Promises, Push, Reading, Record, Seat,
    SeatName, SeatStore, Seen, StoreError, StoreTime, Swap, Token, Version, record,
};
use tokio::sync::Semaphore;

use crate::board::Presence;
use crate::ears::{Ear, Heard};
use crate::faults;
use crate::gather::Replicas;
use crate::keys::Keys;
use crate::link::{Call, Link};
use crate::options::RedisOptions;
use crate::place::{Place, place};
use crate::scripts::{self, Source};
use crate::servers::Servers;

/// Seats in Redis.
///
/// Nothing is connected by making one: the engine connects when it first asks for a seat, and again
/// whenever a connection was lost.
pub struct RedisStore {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    database: i64,
    min_replicas: u32,
    /// Which process of a server has said that there is no such seat.
    absent: Mutex<HashMap<SeatName, Identity>>,
    pub(crate) presence: Presence,
    /// So many watches may begin at a time: beginning takes memory, watching hardly any.
    beginning: Semaphore,
}

impl RedisStore {
    /// Seats where the options say.
    ///
    /// # Errors
    /// In one line, if the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: RedisOptions) -> Result<Self, String> {
        options.check()?;
        let place = place(&options)?;
        Ok(Self::at(place, options.prefix, options.database, options.min_replicas))
    }

    /// Seats where the URL says: see [`RedisOptions::from_url`].
    ///
    /// # Errors
    /// In one line, if the URL cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        Self::new(RedisOptions::from_url(url)?)
    }

    /// Seats in the one server that a client of the `redis` crate names, with its user, TLS and TCP
    /// settings. Its own connections are not used: the store makes one on the engine's thread.
    pub fn from_client(client: &Client) -> Self {
        let RedisOptions { prefix, min_replicas, .. } = RedisOptions::default();
        Self::of_client(client, prefix, min_replicas)
    }

    /// The same with `prefix` and `min_replicas` of these options, of which nothing else is looked at.
    ///
    /// # Errors
    /// In one line, if the prefix cannot be one.
    pub fn with_client(client: &Client, options: RedisOptions) -> Result<Self, String> {
        let RedisOptions { prefix, min_replicas, .. } = options;
        RedisOptions { prefix: prefix.clone(), ..RedisOptions::default() }.check()?;
        Ok(Self::of_client(client, prefix, min_replicas))
    }

    fn of_client(client: &Client, prefix: String, min_replicas: u32) -> Self {
        let info = client.get_connection_info().clone();
        let database = info.redis_settings().db();
        Self::at(Place::One(info), prefix, database, min_replicas)
    }

    fn at(place: Place, prefix: String, database: i64, min_replicas: u32) -> Self {
        Self {
            servers: Servers::new(place),
            prefix,
            database,
            min_replicas,
            absent: Mutex::default(),
            presence: Presence::default(),
            beginning: Semaphore::new(256),
        }
    }

    pub(crate) fn keys(&self, seat: &SeatName) -> Keys {
        Keys::of(&self.prefix, self.database, seat)
    }

    fn absent(&self) -> MutexGuard<'_, HashMap<SeatName, Identity>> {
        self.absent.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs a script on the server that has a seat, and follows it if it has moved: a server that says so
    /// has run nothing. But not to another server than `only`: then there are no answers.
    async fn run(
        &self,
        link: Arc<Link>,
        only: Option<&Identity>,
        slot: u16,
        call: Call<'_>,
    ) -> Result<(Arc<Link>, Vec<Value>), StoreError> {
        let (mut link, mut call) = (link, call);
        for _ in 0..3 {
            let error = match link.run(&call).await {
                Ok(answers) => return Ok((link, answers)),
                Err(error) => error,
            };
            let redirect = error.redirect_node().map(|(host, port)| (host.to_owned(), port));
            let Some((host, port)) = redirect.filter(|_| self.servers.is_cluster()) else {
                return Err(faults::of_asking(&link.address, error));
            };
            if error.code() == Some("ASK") {
                link = self.servers.link_to(&self.servers.node(&link, &host, port)).await?;
                call.before = Some(redis::cmd("ASKING"));
            } else {
                link = self.servers.link_to(&self.servers.moved(slot, &link, &host, port)).await?;
                call.before = None;
            }
            if only.is_some_and(|only| *only != link.identity) {
                return Ok((link, Vec::new()));
            }
        }
        Err(StoreError::refused("the cluster sends us around in circles: it is being rearranged"))
    }

    /// A script with one answer that does not mind where it runs.
    pub(crate) async fn ask(
        &self,
        slot: u16,
        script: &'static Source,
        names: &[&str],
        with: &[&str],
    ) -> Result<(Arc<Link>, Value), StoreError> {
        let link = self.servers.link(slot).await?;
        let call = Call { script, keys: names, arguments: with, before: None, replicas: None };
        let (link, mut answers) = self.run(link, None, slot, call).await?;
        Ok((link, answers.pop().unwrap_or(Value::Nil)))
    }

    async fn look(&self, seat: &SeatName, keys: &Keys) -> Result<Reading, StoreError> {
        let ear = self.servers.existing(keys.slot).and_then(|link| link.ear(&keys.channel));
        let changes = ear.as_ref().map_or(0, |ear| ear.heard().changes);
        let (link, answer) = self.ask(keys.slot, &scripts::READ, &[&keys.seat], &[]).await?;
        let reading = Answer::of(answer)?.reading(&link.identity)?;
        match &reading.seat {
            None => self.absent().insert(seat.clone(), link.identity.clone()),
            Some(_) => self.absent().remove(seat),
        };
        mark(&link, keys, ear, changes, reading.seat.as_ref().map(|seat| seat.version.clone()));
        Ok(reading)
    }

    /// The conditional write. See [`scripts`] for why it is right.
    async fn write(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let keys = self.keys(seat);
        let link = self.servers.link(keys.slot).await?;
        // What the condition was read from: a server that is gone may have lost what was written since.
        let (bound, expected) = match expected.map(|version| version.as_str().split_once('/').unwrap_or_default()) {
            Some((identity, nonce)) => (Some(Identity::new(identity)), nonce.to_owned()),
            None => (self.absent().get(seat).cloned(), String::new()),
        };
        if bound.as_ref().is_some_and(|bound| *bound != link.identity) {
            return Ok(Swap::Lost);
        }
        let ear = link.ear(&keys.channel);
        let changes = ear.as_ref().map_or(0, |ear| ear.heard().changes);
        let nonce = format!("{:016x}", next.nonce);
        let waits = self.min_replicas > 0 && !next.is_vacant();
        let call = Call {
            script: &scripts::SWAP,
            keys: &[&keys.seat],
            arguments: &[&expected, &nonce, &record::to_json(next), &holder(Some(next)), &keys.channel],
            before: None,
            // They are not waited for so long that an attempt is over: half of what it is given.
            replicas: waits.then_some(Replicas { count: self.min_replicas, within: next.lease / 30 }),
        };
        let (link, mut answers) = self.run(link, bound.as_ref(), keys.slot, call).await?;
        let replicas = waits.then(|| answers.pop()).flatten();
        if answers.pop() != Some(Value::Int(1)) {
            return Ok(Swap::Lost);
        }
        if waits && !matches!(replicas, Some(Value::Int(count)) if count >= i64::from(self.min_replicas)) {
            return Err(StoreError::unknown(format!(
                "{} has written it, but not {} of its replicas in time",
                link.address, self.min_replicas
            )));
        }
        self.absent().remove(seat);
        let version = version(&link.identity, &nonce);
        mark(&link, &keys, ear, changes, Some(version.clone()));
        Ok(Swap::Done { version, since: None, granted: None })
    }

    /// Returns once there is news.
    async fn wait_for_news(&self, seat: &SeatName, seen: &Seen, lease: Duration) -> Result<(), StoreError> {
        let begins = self.beginning.acquire().await.ok();
        // In a box, as it is large, soon over, and what follows it small: there are as many as there are seats.
        let ready = Box::pin(async { tokio::time::timeout(lease / 3, self.begin_to_listen(seat, seen, lease)).await });
        let given_up = StoreError::refused("nobody can be listened to");
        let ready = ready.await;
        drop(begins);
        let Some((link, ear, changes)) = ready.unwrap_or(Err(given_up))? else { return Ok(()) };
        let known = holder(seen.seat.as_ref().map(|seat| &seat.record));
        let is_news = |heard: &Heard| {
            (heard.changes > changes && heard.holder != known)
                || (seen.requests && heard.no_requests != Some(heard.requests))
        };
        ear.wait_for(&link.ears, is_news).await;
        Ok(())
    }

    /// Listens first, then looks: what changes in between is heard. `None`: there is news already.
    async fn begin_to_listen(
        &self,
        seat: &SeatName,
        seen: &Seen,
        lease: Duration,
    ) -> Result<Option<(Arc<Link>, Arc<Ear>, u64)>, StoreError> {
        let keys = self.keys(seat);
        let link = self.servers.link(keys.slot).await?;
        link.serves(lease);
        let ear = link.listen(&keys.channel).await?;
        let (marked, changes) = {
            let heard = ear.heard();
            let version = seen.seat.as_ref().map(|seat| &seat.version);
            let marked = heard.mark.as_ref().filter(|(marked, _)| marked.as_ref() == version);
            (marked.map(|(_, changes)| *changes), heard.changes)
        };
        if marked.is_none() && seen.differs_from(self.look(seat, &keys).await?.seat.as_ref()) {
            return Ok(None);
        }
        let unread = {
            let heard = ear.heard();
            heard.no_requests != Some(heard.requests)
        };
        if seen.requests && unread && !Board::list(self, seat, NoteKind::Request).await?.is_empty() {
            return Ok(None);
        }
        Ok(Some((link, ear, marked.unwrap_or(changes))))
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl SeatStore for RedisStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Clock,
            judge: Judge::Vouched,
            push: Push::Proven,
            durability: "as the server is configured: with appendfsync always on disk, else in memory",
            // A fifteenth of it is what a call is given.
            min_lease: Duration::from_millis(150),
            broken_by: &[
                "A candidate that is started just after the server has lost what it was told (restarted without \
                 appendfsync always, failed over to a replica that lagged behind, flushed, evicted, or a seat \
                 deleted by hand) can bid at once: \
                 it cannot know what was lost. Those that were there wait a lease.",
                "Another server is made the master while the old one lives on, cut off together with the leader: each \
                 side then has one, until they meet again. ?min_replicas= of more than half of the replicas prevents it.",
                "The server's wall clock was set back across a loss of data, or that of the server that took over is \
                 behind by more than the fail-over took: a token that was lost can be given out again.",
                "The server's wall clock is set back and then forward again within two leases (judge=observe does not rely on it).",
                "A proxy between us and the servers that moves a connection from one server to another.",
            ],
            ..Promises::of("redis")
        }
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.look(seat, &self.keys(seat)).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.write(seat, expected, next).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let lease = seen.seat.as_ref().map_or(Duration::from_secs(1), |seat| seat.record.lease);
        if let Err(error) = self.wait_for_news(seat, seen, lease).await {
            // What cannot be heard must be looked for.
            tracing::debug!(%seat, %error, "changes cannot be listened for: looking every so often");
            Box::pin(tokio::time::sleep(lease / 3)).await;
        }
        Change::Look
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let keys = self.keys(seat);
        let names = [&keys.seat, keys.board(NoteKind::Request), keys.board(NoteKind::Announcement)];
        self.ask(keys.slot, &scripts::FORGET, &names, &[&keys.channel]).await.map(drop)
    }
}

/// What the read script answers.
struct Answer {
    now: (i64, i64),
    record: Option<String>,
    nonce: Option<String>,
    at: Option<String>,
    floor: Option<u64>,
}

impl Answer {
    fn of(answer: Value) -> Result<Self, StoreError> {
        type Parts = (i64, i64, Option<String>, Option<String>, Option<String>, Option<u64>);
        let (seconds, micros, record, nonce, at, floor) = redis::from_redis_value::<Parts>(answer)
            .map_err(|error| StoreError::denied("the seat holds something that Tenure did not write").because(error))?;
        Ok(Self { now: (seconds, micros), record, nonce, at, floor })
    }

    fn reading(self, identity: &Identity) -> Result<Reading, StoreError> {
        let seat = match (self.record, self.nonce) {
            (Some(json), nonce) => {
                let life = match self.at.as_deref().and_then(time) {
                    Some(renewed) => Life::Clock { now: store_time(self.now), renewed: store_time(renewed) },
                    None => Life::Observe,
                };
                let record = record::from_json(&json)?;
                Some(Seat { record, version: version(identity, &nonce.unwrap_or_default()), life })
            }
            (None, _) => None,
        };
        let floor = self.floor.unwrap_or(0).max(clock_floor(self.now));
        Ok(Reading { seat, floor: Token::new(floor), identity: Some(identity.clone()) })
    }
}

/// The token that every bid after a reading must be above: the server's time at that reading, in microseconds.
///
/// Nobody can tell from a seat, or from its absence, whether later terms of it were lost: with a restart from an
/// old snapshot, with the promotion of a replica that lagged behind, by `FLUSHALL` or by eviction. Claim: no bid
/// repeats the token of a term that was won before its reading, lost or not. A token is at most one above the
/// server's time at the reading that it was bid after, or one above an earlier token, of which there are fewer than
/// microseconds. Between that reading and any reading after the win lies the winner's round trip, which takes longer
/// than a microsecond. So a reading after the win is above its token, if the clock was not set back meanwhile; and
/// on another server, if its clock is not behind by more than it took to fail over.
///
/// The candidate's own clock takes no part: that of one host far ahead would push tokens above the time of
/// the server, and a floor that is lower than the tokens protects nobody.
fn clock_floor((seconds, micros): (i64, i64)) -> u64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros).try_into().unwrap_or(0)
}

fn time(text: &str) -> Option<(i64, i64)> {
    let (seconds, micros) = text.split_once(' ')?;
    Some((seconds.parse().ok()?, micros.parse().ok()?))
}

fn store_time((seconds, micros): (i64, i64)) -> StoreTime {
    StoreTime::from_nanos(i128::from(seconds) * 1_000_000_000 + i128::from(micros) * 1000)
}

fn version(identity: &Identity, nonce: &str) -> Version {
    Version::new(format!("{}/{nonce}", identity.as_str()))
}

/// Who holds a seat in which term, as it is kept beside the record and published when it changes.
fn holder(record: Option<&Record>) -> String {
    match record {
        None => String::new(),
        Some(record) => match &record.holder {
            Some(holder) => format!("{} {}", holder.incarnation, record.token),
            None => format!("- {}", record.token),
        },
    }
}

/// Notes that this version was there when so many changes had been heard of, if they were listened to
/// all the time on this connection.
fn mark(link: &Link, keys: &Keys, ear: Option<Arc<Ear>>, changes: u64, version: Option<Version>) {
    if let Some(ear) = still_open(link, keys, ear) {
        ear.heard().mark = Some((version, changes));
    }
}

pub(crate) fn still_open(link: &Link, keys: &Keys, ear: Option<Arc<Ear>>) -> Option<Arc<Ear>> {
    let now = link.ear(&keys.channel)?;
    ear.filter(|ear| Arc::ptr_eq(ear, &now))
}
