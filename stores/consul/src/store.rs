//! The store itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{
    Answers, BatchLimits, Call, Clock, DynNotes, Interest, LifeKind, News, Promises, Push, Reading, SeatName,
    SessionId, Store, StoreError, Swap, Takeover, Version, Write,
};

use crate::client::Client;
use crate::keys::Keys;
use crate::notes::NoteSessions;
use crate::options::ConsulOptions;
use crate::seats::{Mark, SEATS, Seats};
use crate::session::{Sessions, sessions};
use crate::tree::Mirror;

/// Seats in Consul.
///
/// Nothing is connected by making one: the engine connects when it first asks for a seat.
pub struct ConsulStore {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) sessions: Sessions,
    pub(crate) seats: Seats,
    pub(crate) note_sessions: NoteSessions,
    pub(crate) min_lease: Duration,
    takeover: Takeover,
}

impl ConsulStore {
    /// Seats where the options say.
    ///
    /// # Errors
    /// In one line, if the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: ConsulOptions) -> Result<Self, String> {
        Ok(Self::over(Client::new(&options)?, options))
    }

    /// Seats where the URL says: see [`ConsulOptions::from_url`].
    ///
    /// # Errors
    /// In one line, without the token, if the URL cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        Self::new(ConsulOptions::from_url(url)?)
    }

    /// Seats where the options say, asked for through a client of your own: its TLS, proxy and socket
    /// settings count, and those of the options do not. It must not try again by itself
    /// (`reqwest::retry::never()`).
    ///
    /// # Errors
    /// In one line, if the options contradict each other, or a file that they name cannot be read.
    pub fn with_client(client: reqwest::Client, options: ConsulOptions) -> Result<Self, String> {
        Ok(Self::over(Client::over(client, &options)?, options))
    }

    fn over(client: Client, options: ConsulOptions) -> Self {
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
        }
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
            // Each is a transaction of its own, so that a condition which does not hold undoes no other, and takes a
            // connection; agents limit those of a client, to 200 by default.
            writes: BatchLimits { seats: 1, calls: 16 },
            shared_heartbeat: true,
            durability: "a write is on the disks of a majority of the servers before it counts",
            min_lease: self.min_lease,
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "A session is ended while its leader lives (consul session destroy, its node deregistered, a check attached to it fails): another may lead until the news, which is usually there within milliseconds, or the end of its lease reaches the old one (takeover=safe waits that long).",
                "A snapshot is restored, or the servers are made anew, while candidates run: those that were there notice and wait a lease, but one that is started just then knows nothing of what was lost. Tokens go on from the number of the last write that is left: if a resource checks tokens, have it forget those it has seen.",
                "Keys of ours are written by hand, or by a program that does not mind locks.",
                "The candidates of one election use different datacenters or prefixes: each has its own seats.",
                "raft_multiplier and the like are set so high that a server which was deposed does not know for a lease.",
                "A bid reaches the server only after its election has stopped, in a process that goes on with other elections of the same lease: their session then holds the seat, and nobody leads until that process ends or stands for it again.",
            ],
            ..Promises::of("consul")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.mirror.attach(clock);
        self.sessions.attach(clock, Some(news));
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.read_seats(seats, to).await;
        Ok(())
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        join_all(writes.iter().enumerate().map(async |(place, write)| to.set(place, self.write_seat(write).await)))
            .await;
        Ok(())
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        Mark::parse(version)?.session.map(SessionId::new)
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
}
