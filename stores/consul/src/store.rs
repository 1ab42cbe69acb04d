//! The store: its constructors, its promises, and the entry points that the engine calls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{
    Answers, BatchLimits, Call, Clock, ConfigError, DynNotes, Interest, LifeKind, News, Promises, Push, Reading,
    SeatName, SessionId, Store, StoreError, Swap, Takeover, Version, Write,
};

use crate::client::Client;
use crate::keys::Keys;
use crate::kv;
use crate::notes::NoteSessions;
use crate::options::ConsulOptions;
use crate::seats::{self, SEATS, Seats};
use crate::session::{Sessions, sessions};
use crate::tree::Mirror;

/// Keeps seats in Consul's key-value store. One session per lease length, with one heartbeat, and one blocking
/// query serve all elections of a process.
///
/// A new store has no connection; it connects at the first call.
pub struct ConsulStore {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) sessions: Sessions,
    pub(crate) seats: Seats,
    pub(crate) note_sessions: NoteSessions,
    pub(crate) min_lease: Duration,
    takeover: Takeover,
    /// Whether the store only reads, and writes no identity of the data.
    pub(crate) read_only: bool,
}

impl ConsulStore {
    /// Creates a store with these options. It connects at the first call, so an unreachable agent is not an error
    /// here.
    ///
    /// # Errors
    /// Returns one line, without the token, if the options contradict each other or a file that they name is not
    /// readable.
    pub fn new(options: ConsulOptions) -> Result<Self, ConfigError> {
        Ok(Self::build(Client::new(&options)?, options))
    }

    /// Creates a store from a URL; see [`ConsulOptions::from_url`] for its form. It connects at the first call.
    ///
    /// # Errors
    /// Returns one line, without the token, if the URL is not valid or a file that it names is not readable.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(ConsulOptions::from_url(url)?)
    }

    /// Creates a store that uses an HTTP client of your own. The client's settings for TLS, proxy and socket
    /// apply instead of those in the options. The client must not retry (`reqwest::retry::never()`): a retry
    /// would hide when a write was sent.
    ///
    /// # Errors
    /// Returns one line, without the token, if the options contradict each other or a file that they name is not
    /// readable.
    pub fn with_client(client: reqwest::Client, options: ConsulOptions) -> Result<Self, ConfigError> {
        Ok(Self::build(Client::with_http(client, &options)?, options))
    }

    fn build(client: Client, options: ConsulOptions) -> Self {
        let (client, keys) = (Arc::new(client), Keys::new(&options.prefix));
        let mirror = Arc::new(Mirror::new(client.clone(), keys.clone()));
        Self {
            sessions: sessions(client.clone(), mirror.clone(), &options),
            client,
            keys,
            mirror,
            seats: Seats::default(),
            note_sessions: NoteSessions::default(),
            min_lease: options.min_lease,
            takeover: options.takeover,
            read_only: false,
        }
    }

    /// Makes the store read only: its token needs only `read` on the prefix, and the first read creates nothing. For
    /// status pages and tools; candidates cannot stand over it.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }
}

impl std::fmt::Debug for ConsulStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsulStore")
            .field("prefix", &self.keys.prefix())
            .field("takeover", &self.takeover)
            .finish_non_exhaustive()
    }
}

impl Store for ConsulStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Session,
            takeover: self.takeover,
            push: Push::Proven,
            reads: BatchLimits { seats: SEATS, calls: 4 },
            // Each write is a transaction of its own, so that a condition that does not hold does not undo
            // another write. Each takes a connection, and an agent limits the connections of a client, to 200 by
            // default.
            writes: BatchLimits { seats: 1, calls: 16 },
            shared_heartbeat: true,
            durability: "a write counts once it is on the disks of a majority of the servers",
            min_lease: self.min_lease,
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "A session is ended while its leader is alive (consul session destroy, its node is deregistered, or a \
                 check attached to it fails): another candidate can lead before the old leader learns of it, usually \
                 within milliseconds and at the latest when its lease ends (takeover=safe waits that long).",
                "A snapshot is restored, or the servers are recreated, while candidates run: candidates that were \
                 running notice and wait for a lease, but a candidate that starts just then cannot know what was lost. \
                 Tokens continue from the index of the last write that remains: if a resource checks tokens, reset the \
                 highest token that it remembers.",
                "Keys under the prefix are written by hand, or by a program that ignores locks.",
                "The candidates of one election use different datacenters or prefixes: each has its own seats.",
                "raft_multiplier or similar settings are so high that a deposed server does not notice for a lease.",
                "A bid takes longer than a fifth of a lease to reach the server, and its election has stopped \
                 meanwhile, in a process that runs other elections with the same lease: their session then holds the \
                 seat, and no candidate leads until that process ends or stands for the seat again.",
            ],
            ..Promises::of("consul")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.mirror.attach(clock);
        self.sessions.attach(clock, news);
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.read_seats(seats, to).await
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        join_all(writes.iter().enumerate().map(async |(place, write)| to.set(place, self.write_seat(write).await)))
            .await;
        Ok(())
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        seats::session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        let Err(error) = self.listen(interest, news).await;
        error
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.forget_seat(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        let keys = kv::keys_under(&self.client, &self.keys.seats()).await?;
        Ok(keys.iter().filter_map(|key| self.keys.seat_of(key)).collect())
    }
}
