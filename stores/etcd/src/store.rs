//! The store itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ClientConfig;
use tenure_core::{
    Answers, BatchLimits, Call, Clock, DynNotes, Interest, LifeKind, News, Promises, Push, Reading, SeatName,
    SessionId, Store, StoreError, Swap, Takeover, Version, Write,
};
use tenure_kit::Reconnect;

use crate::connect::Connector;
use crate::connection::EtcdConnection;
use crate::keys::Keys;
use crate::mark::Mark;
use crate::notes::Processes;
use crate::options::EtcdOptions;
use crate::session::{Sessions, sessions};

/// Seats in an etcd cluster.
pub struct EtcdStore {
    /// Each time it is replaced, another member is tried first.
    pub(crate) connection: Arc<Reconnect<EtcdConnection>>,
    pub(crate) sessions: Sessions,
    pub(crate) keys: Keys,
    min_lease: Duration,
    /// Sessions that hold seats, as last seen.
    pub(crate) holders: Mutex<BTreeSet<i64>>,
    pub(crate) processes: Processes,
}

impl EtcdStore {
    /// A store in this cluster. Nothing is connected before the first call.
    ///
    /// # Errors
    /// In one line, without the password, if the options cannot be.
    pub fn new(options: EtcdOptions) -> Result<Self, String> {
        options.check()?;
        Ok(Self::made(options, None))
    }

    /// A store at this URL.
    ///
    /// # Errors
    /// In one line, without the password, if the URL cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        Self::new(EtcdOptions::from_url(url)?)
    }

    /// A store with a TLS configuration of your own, and everything else from the options, whose `ca`, `cert` and
    /// `key` are not looked at.
    ///
    /// # Errors
    /// In one line, without the password, if the options cannot be.
    pub fn with_tls(options: EtcdOptions, config: ClientConfig) -> Result<Self, String> {
        let options = EtcdOptions { tls: true, ..options };
        options.check()?;
        Ok(Self::made(options, Some(config)))
    }

    fn made(options: EtcdOptions, tls: Option<ClientConfig>) -> Self {
        let keys = Keys::new(&options.prefix);
        let min_lease = Duration::from_secs(options.min_lease.into());
        let connector = Arc::new(Connector::new(options, tls));
        let connection = Arc::new(Reconnect::new(move || connector.clone().connect()));
        Self {
            sessions: sessions(connection.clone(), keys.clone()),
            connection,
            keys,
            min_lease,
            holders: Mutex::default(),
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
            // Members take 128 operations in a transaction. A seat that is read takes two, beside the sessions that
            // may hold it; writes may have a few inside.
            reads: BatchLimits { seats: 30, calls: 8 },
            writes: BatchLimits { seats: 100, calls: 8 },
            shared_heartbeat: true,
            durability: "a write is on the disks of a majority of the members before it counts",
            min_lease: self.min_lease,
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "A lease is revoked while its leader lives (etcdctl lease revoke, or a member that led the cluster goes on after it was stopped for longer than the lease), or its key under live/ is deleted: another may lead until the news, which is usually there within milliseconds, or the end of its lease reaches the old one (takeover=safe waits that long).",
                "The clocks of two members that lead the cluster one after the other run apart by more than the drift.",
                "The cluster is restored from a snapshot, or made anew, from a part of its members (--force-new-cluster) or with an empty data directory. Candidates that were there notice and wait a lease; one that is started afterwards knows nothing of what was lost. Tokens go on from the restored revision, or begin again at 2: if a resource checks tokens, have it forget those it has seen.",
                "Keys under the prefix are edited by hand while candidates run. Those that were there when a seat was deleted wait a lease; one that is started just after that cannot know, and can bid at once.",
                "Disks that lie about what they have written (--unsafe-no-fsync), and a majority of the members crashes.",
                "A bid reaches the server only after its election has stopped, in a process that goes on with other elections of the same lease: their session then holds the seat, and nobody leads until that process ends or stands for it again.",
            ],
            ..Promises::of("etcd")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.sessions.attach(clock, Some(news));
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.read_seats(seats, to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        self.write_seats(call.lease, writes, to).await;
        Ok(())
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        Mark::parse(version)?.session_name()
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
}
