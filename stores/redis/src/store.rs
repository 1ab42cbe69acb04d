//! The store itself: what the engine asks, in terms of scripts and connections.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redis::{Client, Value};
use tenure_core::{
    Answers, BatchLimits, Board, Call, ClockTrust, DynNotes, Expect, Identity, Interest, Life, LifeKind, News,
    Promises, Push, Reading, Record, Seat, SeatName, Store, StoreError, StoreTime, Swap, Token, Version, Write, record,
};

use crate::asks::Ask;
use crate::keys::Names;
use crate::options::RedisOptions;
use crate::place::{Place, place};
use crate::scripts;
use crate::servers::Servers;
use crate::watch::{self, Subscriptions};

/// Seats in Redis.
///
/// Nothing is connected by making one: the engine connects when it first asks for a seat, and again
/// whenever a connection was lost.
pub struct RedisStore {
    pub(crate) servers: Servers,
    subscriptions: Arc<Subscriptions>,
    pub(crate) min_replicas: u32,
    /// How often servers may have lost something when it was last told.
    pub(crate) losses: AtomicU64,
}

impl RedisStore {
    /// Seats where the options say.
    ///
    /// # Errors
    /// In one line, if the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: RedisOptions) -> Result<Self, String> {
        options.check()?;
        Ok(Self::at(place(&options)?, options))
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
        Self::of_client(client, RedisOptions::default())
    }

    /// The same with `prefix` and `min_replicas` of these options, of which nothing else is looked at.
    ///
    /// # Errors
    /// In one line, if the prefix cannot be one.
    pub fn with_client(client: &Client, options: RedisOptions) -> Result<Self, String> {
        RedisOptions { prefix: options.prefix.clone(), ..RedisOptions::default() }.check()?;
        Ok(Self::of_client(client, options))
    }

    fn of_client(client: &Client, options: RedisOptions) -> Self {
        let info = client.get_connection_info().clone();
        let database = info.redis_settings().db();
        Self::at(Place::One(info), RedisOptions { database, ..options })
    }

    fn at(place: Place, options: RedisOptions) -> Self {
        let RedisOptions { prefix, database, min_replicas, .. } = options;
        let subscriptions = Arc::new(Subscriptions::new(Names { prefix, database }));
        Self {
            servers: Servers::new(place, subscriptions.clone()),
            subscriptions,
            min_replicas,
            losses: AtomicU64::new(0),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.subscriptions.names
    }

    /// The conditional write. See [`scripts`] for why it is right.
    fn ask_to_write(&self, place: usize, Write { seat, expect, record }: &Write) -> Ask {
        let keys = self.names().keys(seat);
        let holder = holder(record);
        // What the condition was read from: a server that is gone may have lost what was written since.
        let (only, field, expected) = match expect {
            Expect::Absent(read_from) => (read_from.clone(), "nonce", String::new()),
            Expect::Version(version) => {
                let (identity, nonce) = parts(version);
                (Some(identity), "nonce", nonce.to_owned())
            }
            Expect::Held(version) => (Some(parts(version).0), "holder", holder.clone()),
        };
        let arguments = vec![field.to_owned(), expected, nonce(record), record::to_json(record), holder, keys.channel];
        // A release waits for no replicas: if it is lost, the seat is free a lease later.
        let waits = self.min_replicas > 0 && !record.is_vacant();
        Ask::new(place, keys.slot, &scripts::SWAP, vec![keys.seat], arguments).on(only, waits)
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.names().prefix)
            .field("database", &self.names().database)
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Clock,
            clock_trust: ClockTrust::Vouched,
            push: Push::Proven,
            reads: MOST,
            writes: MOST,
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
                "The server's wall clock is set back and then forward again within two leases (clock_trust=never does not rely on it).",
                "A proxy between us and the servers that moves a connection from one server to another.",
            ],
            ..Promises::of("redis")
        }
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        self.servers.shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let ask = |(place, seat): (usize, &SeatName)| {
            let keys = self.names().keys(seat);
            Ask::new(place, keys.slot, &scripts::READ, vec![keys.seat], Vec::new())
        };
        self.run(seats.iter().enumerate().map(ask).collect(), Some(call), &|place, answer| {
            to.set(place, answer.and_then(|(connection, value)| reading(&connection.identity, value)));
        })
        .await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let asks = writes.iter().enumerate().map(|(place, write)| self.ask_to_write(place, write)).collect();
        self.run(asks, Some(call), &|place, answer| {
            let record = &writes[place].record;
            to.set(
                place,
                answer.map(|(connection, value)| {
                    if value != Value::Int(1) {
                        return Swap::Lost;
                    }
                    Swap::Done { version: version(&connection.identity, &nonce(record)), since: None, granted: None }
                }),
            );
        })
        .await
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        watch::watch(&self.servers, &self.subscriptions, interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let keys = self.names().keys(seat);
        let boards = [Board::Requests(seat.clone()), Board::Candidates(seat.clone())];
        let [requests, candidates] = boards.map(|board| self.names().board(&board).0);
        let names = [&*keys.seat, &requests, &candidates];
        self.ask(keys.slot, &scripts::FORGET, &names, &[&keys.channel]).await.map(drop)
    }
}

/// What the read script has answered.
fn reading(identity: &Identity, answer: Value) -> Result<Reading, StoreError> {
    type Parts = (i64, i64, Option<String>, Option<String>, Option<String>, Option<u64>);
    let (seconds, micros, json, nonce, renewed, floor) = redis::from_redis_value::<Parts>(answer)
        .map_err(|error| StoreError::denied("the seat holds something that Tenure did not write").because(error))?;
    let now = in_micros(seconds, micros);
    let seat = |json: String| {
        let life = match renewed.as_deref().and_then(read_time) {
            Some(renewed) => Life::Clock { now: store_time(now), renewed: store_time(renewed) },
            None => Life::Observe,
        };
        let version = version(identity, &nonce.unwrap_or_default());
        Ok::<_, StoreError>(Seat { record: record::from_json(&json)?, version, life })
    };
    let floor = Token::new(floor.unwrap_or(0).max(clock_floor(now)));
    Ok(Reading { seat: json.map(seat).transpose()?, floor, identity: Some(identity.clone()) })
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
fn clock_floor(now: i64) -> u64 {
    now.try_into().unwrap_or(0)
}

/// The time of a seat, as `swap.lua` writes it.
fn read_time(text: &str) -> Option<i64> {
    let (seconds, micros) = text.split_once(' ')?;
    Some(in_micros(seconds.parse().ok()?, micros.parse().ok()?))
}

fn in_micros(seconds: i64, micros: i64) -> i64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_nanos(i128::from(micros) * 1000)
}

fn version(identity: &Identity, nonce: &str) -> Version {
    Version::new(format!("{}/{nonce}", identity.as_str()))
}

/// The process of the server that a version was read from, and its nonce.
fn parts(version: &Version) -> (Identity, &str) {
    let (identity, nonce) = version.as_str().split_once('/').unwrap_or_default();
    (Identity::new(identity), nonce)
}

fn nonce(record: &Record) -> String {
    format!("{:016x}", record.nonce)
}

/// Who holds a seat in which term, as it is kept beside the record and published when it changes.
fn holder(record: &Record) -> String {
    match &record.holder {
        Some(holder) => format!("{} {}", holder.incarnation, record.token),
        None => format!("- {}", record.token),
    }
}

/// What goes out together at most, and how many round trips may be under way at once. A server that has little time
/// answers as much within the shortest time-out.
const MOST: BatchLimits = BatchLimits { seats: 128, calls: 4 };
