//! The store: turns the engine's calls into scripts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{Client, Value};
use tenure_core::{
    Answers, BatchLimits, Board, Call, ClockTrust, ConfigError, DataIdentity, DynNotes, Expect, Interest, Life,
    LifeKind, News, Promises, Push, Reading, Record, Seat, SeatName, Store, StoreError, StoreTime, Swap, Token,
    Version, Write, record,
};
use tenure_kit::nonce_of;

use crate::keys::Names;
use crate::options::RedisOptions;
use crate::script_calls::ScriptCall;
use crate::scripts;
use crate::servers::Servers;
use crate::topology::{Topology, topology};
use crate::watch::{self, Channels};

/// A store that keeps seats in Redis or Valkey: one server, a master behind Sentinels, or a cluster.
///
/// The store connects at the engine's first call, and again after a connection is lost. Elections of one process
/// should share one store: they then share its connection and its round trips.
pub struct RedisStore {
    pub(crate) servers: Servers,
    channels: Arc<Channels>,
    pub(crate) min_replicas: u32,
    /// The last value of `Servers::losses` that was reported to the engine.
    pub(crate) losses: AtomicU64,
}

impl RedisStore {
    /// Creates a store for the servers that the options name. Reads the certificates, but does not connect: a
    /// server that cannot be reached shows at the first call.
    ///
    /// # Errors
    /// Returns one line if the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: RedisOptions) -> Result<Self, ConfigError> {
        options.check()?;
        Ok(Self::build(topology(&options)?, options))
    }

    /// Creates a store for the servers at this URL. See [`RedisOptions::from_url`] for its forms.
    ///
    /// # Errors
    /// Returns one line, without the password, if the URL is invalid or a file that it names cannot be read.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(RedisOptions::from_url(url)?)
    }

    /// Creates a store for the server of a client of the `redis` crate, with the client's user, TLS and TCP settings.
    /// The store opens its own connection, on the engine's thread, and does not use those of the client.
    pub fn from_client(client: &Client) -> Self {
        Self::of_client(client, RedisOptions::default())
    }

    /// Creates a store for the server of a client, with the `prefix` and `min_replicas` of the options. All other
    /// options are ignored.
    ///
    /// # Errors
    /// Returns one line if the prefix is empty or contains braces.
    pub fn with_client(client: &Client, options: RedisOptions) -> Result<Self, ConfigError> {
        RedisOptions { prefix: options.prefix.clone(), ..RedisOptions::default() }.check()?;
        Ok(Self::of_client(client, options))
    }

    fn of_client(client: &Client, options: RedisOptions) -> Self {
        let info = client.get_connection_info().clone();
        let database = info.redis_settings().db();
        Self::build(Topology::One(info), RedisOptions { database, ..options })
    }

    fn build(topology: Topology, options: RedisOptions) -> Self {
        let RedisOptions { prefix, database, min_replicas, .. } = options;
        let channels = Arc::new(Channels::new(Names { prefix, database }));
        Self { servers: Servers::new(topology, channels.clone()), channels, min_replicas, losses: AtomicU64::new(0) }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.channels.names
    }

    /// Returns the conditional write of a seat. See [`scripts`] for why it is correct.
    fn swap_script(&self, place: usize, Write { seat, expect, record }: &Write) -> ScriptCall {
        let keys = self.names().keys(seat);
        let holder = holder(record);
        // The write may run only on the process from which its condition was read: another one may lack later writes.
        // A version that this store never returned has an empty identity, which no server has.
        let read = expect.version().and_then(VersionParts::parse).unwrap_or_default();
        let (only, field, expected) = match expect {
            Expect::Absent(read_from) => (read_from.clone(), "nonce", String::new()),
            Expect::Version(_) | Expect::HolderDead(_) => (Some(DataIdentity::new(read.identity)), "nonce", read.write),
            Expect::Held(_) => (Some(DataIdentity::new(read.identity)), "holder", holder.clone()),
        };
        let arguments =
            vec![field.to_owned(), expected, nonce_of(record), record::to_json(record), holder, keys.channel];
        // A release does not wait for replicas: if it is lost, the seat expires a lease later.
        let waits = self.min_replicas > 0 && !record.is_vacant();
        ScriptCall::new(place, keys.slot, &scripts::SWAP, vec![keys.seat], arguments).on(only, waits)
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
            reads: LIMITS,
            writes: LIMITS,
            durability: "as the server is configured: on disk with appendfsync always, otherwise in memory",
            // A call times out after a fifteenth of the lease: here 10 ms.
            min_lease: Duration::from_millis(150),
            broken_by: &[
                "A candidate starts just after the server has lost writes (a restart without appendfsync always, a \
                 failover to a replica that lagged behind, a flush, an eviction, or a seat deleted by hand): it cannot \
                 know what was lost, and can bid at once. Candidates that were already running wait a lease.",
                "Another server becomes the master while the old one keeps running, cut off together with the leader: \
                 each side has a leader until they are connected again. ?min_replicas= of at least half of the \
                 replicas prevents it.",
                "The server's wall clock is set back across a loss of data, or the clock of the server that takes over \
                 is behind by more than the failover took: a token that was lost can be issued again.",
                "The server's wall clock is set back and then forward again within two leases (clock_trust=never does not rely on it).",
                "A proxy moves a connection from one server to another.",
            ],
            ..Promises::of("redis")
        }
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        self.servers.shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let script = |(place, seat): (usize, &SeatName)| {
            let keys = self.names().keys(seat);
            ScriptCall::new(place, keys.slot, &scripts::READ, vec![keys.seat], Vec::new())
        };
        self.run(seats.iter().enumerate().map(script).collect(), Some(call), &|place, answer| {
            to.set(place, answer.and_then(|(connection, value)| reading(&connection.identity, value)));
        })
        .await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let scripts = writes.iter().enumerate().map(|(place, write)| self.swap_script(place, write)).collect();
        self.run(scripts, Some(call), &|place, answer| {
            let record = &writes[place].record;
            to.set(
                place,
                answer.map(|(connection, value)| {
                    if value != Value::Int(1) {
                        return Swap::Lost;
                    }
                    Swap::Done { version: version(&connection.identity, nonce_of(record)), since: None, granted: None }
                }),
            );
        })
        .await
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        watch::watch(&self.servers, &self.channels, interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let keys = self.names().keys(seat);
        let boards = [Board::Requests(seat.clone()), Board::Candidates(seat.clone())];
        let [requests, candidates] = boards.map(|board| self.names().board(&board).0);
        let names = [&*keys.seat, &requests, &candidates];
        self.run_one(keys.slot, &scripts::FORGET, &names, &[&keys.channel]).await.map(drop)
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        let masters = self.servers.masters().await?;
        let each = try_join_all(masters.iter().map(|master| self.list_on(master))).await?;
        // A key that moves to another node meanwhile can be found on both.
        let seats: BTreeSet<SeatName> = each.into_iter().flatten().collect();
        Ok(seats.into_iter().collect())
    }
}

/// Parses the answer of the read script.
fn reading(identity: &DataIdentity, answer: Value) -> Result<Reading, StoreError> {
    type Parts = (i64, i64, Option<String>, Option<String>, Option<String>, Option<u64>);
    let (seconds, micros, json, nonce, renewed, floor) = redis::from_redis_value::<Parts>(answer).map_err(|error| {
        StoreError::denied("the seat holds something that Tenure did not write; use another ?prefix=").because(error)
    })?;
    let now = in_micros(seconds, micros);
    let seat = |json: String| {
        let life = match renewed.as_deref().and_then(read_time) {
            Some(renewed) => Life::Clock { now: store_time(now), renewed: store_time(renewed) },
            None => Life::Observe,
        };
        let version = version(identity, nonce.unwrap_or_default());
        Ok::<_, StoreError>(Seat { record: record::from_json(&json)?, version, life })
    };
    let floor = Token::new(floor.unwrap_or(0).max(clock_floor(now)));
    Ok(Reading { seat: json.map(seat).transpose()?, floor, identity: Some(identity.clone()) })
}

/// Returns the floor of a reading, which every bid that rests on it must exceed: the server's time in microseconds.
///
/// Why it is needed: a seat, or its absence, does not show whether later terms were lost, by a restart from an old
/// snapshot, the promotion of a replica that lagged behind, `FLUSHALL` or eviction.
///
/// Claim: no bid repeats the token of a term that was won before the bid's reading, even if that term was lost.
/// Reason: a token is at most one above the server's time at the reading that its bid rests on, or one above an
/// earlier token, and a seat has fewer tokens than microseconds have passed. The winner's round trip lies between
/// that reading and any reading after the win, and takes longer than a microsecond. Conclusion: a reading after
/// the win has a floor that is not below the token of that win, and a bid is above its floor. This holds if the
/// clock was not set back meanwhile, and on another server if its clock is not behind by more than the failover
/// took. A bid on a pushed release rests on an older reading, but of the same server process, which does not go back
/// to an earlier state of a seat. So if that release is still in place, no later term is lost.
///
/// The candidate's own clock plays no part. If one host's clock were far ahead, it would push tokens above the
/// server's time, and a floor below the tokens in use protects nothing.
fn clock_floor(now: i64) -> u64 {
    now.try_into().unwrap_or(0)
}

/// Parses the time of a seat, as `swap.lua` writes it.
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

/// The parts of a version: the nonce of the write, and the process of the server from which it was read. There are no
/// sessions.
type VersionParts = tenure_kit::VersionParts<String, String, String>;

/// Returns the version of a seat that the server with this identity wrote with this nonce.
pub(crate) fn version(identity: &DataIdentity, nonce: String) -> Version {
    VersionParts { write: nonce, identity: identity.as_str().to_owned(), session: None }.version()
}

/// Returns the holder and the token of a record, in the form that the seat keeps and the script publishes.
fn holder(record: &Record) -> String {
    match &record.holder {
        Some(holder) => format!("{} {}", holder.incarnation, record.token),
        None => format!("- {}", record.token),
    }
}

/// At most 128 seats share a round trip, and at most 4 round trips of a kind are in flight to a server. Even a busy
/// server answers that many within the shortest time-out.
const LIMITS: BatchLimits = BatchLimits { seats: 128, calls: 4 };
