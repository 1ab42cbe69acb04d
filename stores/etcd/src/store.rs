//! The store: its constructors, its promises, and the entry points that the engine calls.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ClientConfig;
use tenure_core::{
    Answers, BatchLimits, Call, Clock, ConfigError, DynNotes, Interest, LifeKind, News, Promises, Push, Reading,
    SeatName, SessionId, Store, StoreError, Swap, Takeover, Version, Write,
};
use tenure_kit::{PendingWrites, Reconnect};

use crate::connect::Connector;
use crate::connection::EtcdConnection;
use crate::keys::Keys;
use crate::notes::Processes;
use crate::options::EtcdOptions;
use crate::session::{Sessions, sessions};
use crate::version;

/// Keeps seats in an etcd cluster. One connection, one watch and one keep-alive per lease length serve all
/// elections of a process.
pub struct EtcdStore {
    /// Each reconnect tries another member first.
    pub(crate) connection: Arc<Reconnect<EtcdConnection>>,
    pub(crate) sessions: Sessions,
    pub(crate) keys: Keys,
    min_lease: Duration,
    /// Live sessions that held seats when those were last read.
    pub(crate) holders: Mutex<BTreeSet<i64>>,
    pub(crate) pending: PendingWrites,
    pub(crate) processes: Processes,
}

impl EtcdStore {
    /// Creates a store with these options. It connects at the first call, so an unreachable cluster is not an
    /// error here.
    ///
    /// # Errors
    /// Returns one line, without the password, if the options contradict each other.
    pub fn new(options: EtcdOptions) -> Result<Self, ConfigError> {
        options.check()?;
        Ok(Self::build(options, None))
    }

    /// Creates a store from a URL; see [`EtcdOptions::from_url`] for its form. It connects at the first call.
    ///
    /// # Errors
    /// Returns one line, without the password, if the URL is not valid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(EtcdOptions::from_url(url)?)
    }

    /// Creates a store with a TLS configuration of your own. Everything else comes from the options; their `ca`,
    /// `cert` and `key` are ignored.
    ///
    /// # Errors
    /// Returns one line, without the password, if the options contradict each other.
    pub fn with_tls(options: EtcdOptions, config: ClientConfig) -> Result<Self, ConfigError> {
        let options = EtcdOptions { tls: true, ..options };
        options.check()?;
        Ok(Self::build(options, Some(config)))
    }

    fn build(options: EtcdOptions, tls: Option<ClientConfig>) -> Self {
        let keys = Keys::new(&options.prefix);
        let min_lease = options.min_lease;
        let connector = Arc::new(Connector::new(options, tls));
        let connection = Arc::new(Reconnect::new(move || connector.clone().connect()));
        Self {
            sessions: sessions(connection.clone(), keys.clone()),
            connection,
            keys,
            min_lease,
            holders: Mutex::default(),
            pending: PendingWrites::default(),
            processes: Processes::default(),
        }
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Store for EtcdStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Session,
            takeover: Takeover::Instant,
            push: Push::Proven,
            // A member accepts 128 operations in a transaction. Reading a seat takes two, in addition to one for
            // each session that may hold it; a write may contain a few.
            reads: BatchLimits { seats: 30, calls: 8 },
            writes: BatchLimits { seats: 100, calls: 8 },
            shared_heartbeat: true,
            durability: "a write counts once it is on the disks of a majority of the members",
            min_lease: self.min_lease,
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "A lease is revoked while its leader is alive (etcdctl lease revoke, or the member that led the \
                 cluster resumes after it was stopped for longer than the lease), or its key under live/ is deleted: \
                 another candidate can lead before the old leader learns of it, usually within milliseconds and at the \
                 latest when its lease ends (takeover=safe waits that long).",
                "The clocks of two members that lead the cluster one after the other differ in speed by more than the \
                 drift.",
                "The cluster is restored from a snapshot, or recreated from some of its members (--force-new-cluster) \
                 or with an empty data directory. Candidates that were running notice and wait for a lease; a \
                 candidate that starts afterwards cannot know what was lost. Tokens continue from the restored \
                 revision, or restart at 2: if a resource checks tokens, reset the highest token that it remembers.",
                "Keys under the prefix are edited by hand while candidates run. Candidates that were running when a \
                 seat was deleted wait for a lease; a candidate that starts just afterwards cannot know of it, and can \
                 bid at once.",
                "A majority of the members crashes, and their disks have not kept what they reported as written \
                 (--unsafe-no-fsync).",
                "A bid takes longer than a fifth of a lease to reach the server, and its election has stopped \
                 meanwhile, in a process that runs other elections with the same lease: their session then holds the \
                 seat, and no candidate leads until that process ends or stands for the seat again.",
            ],
            ..Promises::of("etcd")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.sessions.attach(clock, news);
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.read_seats(seats, to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        self.write_seats(call.lease, writes, to).await;
        Ok(())
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        version::session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        match self.watch_all(interest, news).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.forget_seat(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.list_all().await
    }
}
