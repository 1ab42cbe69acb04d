//! The store itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Attended, Board, Change, Clock, DynBoard, Incarnation, Life, LifeKind, Note, NoteKind, Promises, Push, Reading,
    Record, Seat, SeatName, SeatStore, Seen, StoreError, Swap, Takeover, Version,
};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use crate::bells::{Bells, NOTHING_YET, Watch};
use crate::board::Boards;
use crate::dial::Dialer;
use crate::keys::Keys;
use crate::line::Line;
use crate::options::EtcdOptions;
use crate::seats::{Glance, Mark, Reader, Seats};
use crate::sessions::{Ready, Sessions};
use crate::tls;

/// How often to look at a seat that cannot be listened to, three times over, where there is none to tell.
const UNKNOWN_LEASE: Duration = Duration::from_secs(3);

/// Seats in an etcd cluster.
pub struct EtcdStore {
    seats: Seats,
    boards: Boards,
    sessions: Arc<Sessions>,
    bells: Arc<Bells>,
    looks: Semaphore,
    keys: Keys,
    clock: OnceLock<Clock>,
    prefix: String,
    min_lease: Duration,
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
    pub fn with_tls(options: EtcdOptions, config: rustls::ClientConfig) -> Result<Self, String> {
        let options = EtcdOptions { tls: true, ..options };
        options.check()?;
        Ok(Self::made(options, Some(tls::with(config))))
    }

    fn made(options: EtcdOptions, tls: Option<TlsConnector>) -> Self {
        let (prefix, keys) = (options.prefix.clone(), Keys::new(&options.prefix));
        let min_lease = Duration::from_secs(options.min_lease.into());
        let line = Arc::new(Line::new(Dialer::new(options, tls, keys.clone())));
        let bells = Arc::new(Bells::new(keys.clone()));
        let sessions = Arc::new(Sessions::new(line.clone(), keys.clone(), bells.clone()));
        Self {
            seats: Seats::new(line.clone(), keys.clone(), sessions.clone()),
            boards: Boards::new(line, keys.clone(), sessions.clone()),
            sessions,
            bells,
            looks: Semaphore::new(LOOKS),
            keys,
            clock: OnceLock::new(),
            prefix,
            min_lease,
        }
    }

    fn clock(&self) -> Clock {
        self.clock.get().cloned().unwrap_or_default()
    }

    /// Returns once there is something new to see, if only because nobody listens, or it is certain that the watch will
    /// be told of it.
    async fn look_for_news(&self, watch: &Watch<'_>, seat: &SeatName, seen: &Seen) -> Option<Quiet> {
        let lease = seen.seat.as_ref().map_or(UNKNOWN_LEASE, |seat| seat.record.lease);
        let looked = async {
            let look = tokio::time::timeout(lease / 3, async {
                let _turn = self.looks.acquire().await;
                Box::pin(self.look(watch, seat, seen, lease)).await
            });
            match look.await.unwrap_or_else(|_| Err(StoreError::refused("nobody can be listened to"))) {
                Ok(quiet) => quiet,
                Err(error) => {
                    // What cannot be heard must be looked for.
                    tracing::debug!(%seat, %error, "changes cannot be listened for: looking every so often");
                    tokio::time::sleep(lease / 3).await;
                    None
                }
            }
        };
        tokio::select! {
            biased;
            () = watch.told(NOTHING_YET) => None,
            quiet = looked => quiet,
        }
    }

    /// Listened for first, then looked: what changes in between is heard. The look is confirmed by a majority
    /// after the member has said that it watches, so whatever it does not show comes later, and rings.
    async fn look(
        &self,
        watch: &Watch<'_>,
        seat: &SeatName,
        seen: &Seen,
        lease: Duration,
    ) -> Result<Option<Quiet>, StoreError> {
        let (from, to) = self.keys.watched();
        let link = self.seats.link().await?;
        watch.listen_to(link.watch(&from, &to, &self.bells).await?);
        link.pulse(lease / 3);
        loop {
            let Glance { reading, session, requested, revision } = self.seats.read(&link, seat, Reader::Watch).await?;
            let is_over =
                |seat: Option<&Seat>| seat.is_some_and(|seat| seat.life == Life::Over && !seat.record.is_vacant());
            let now_over = is_over(reading.seat.as_ref());
            if let Some(own) = session.filter(|_| now_over).and_then(|session| self.sessions.alive(session)) {
                own.end();
            }
            let is_news = seen.differs_from(reading.seat.as_ref())
                || is_over(seen.seat.as_ref()) != now_over
                || (seen.requests && requested)
                // That may have been told before it was listened for.
                || link.is_over();
            if is_news {
                return Ok(None);
            }
            // The same holder on another session: minded first, then looked, as before.
            if let Some(session) = session.filter(|session| !watch.minds(*session)) {
                watch.mind(session);
                continue;
            }
            let is_others = session.is_some_and(|session| !now_over && !self.sessions.is_own(session));
            let ready = is_others.then(|| self.sessions.ready(lease, self.clock()));
            return Ok(Some(Quiet { revision, _ready: ready }));
        }
    }

    /// Whether this is a session of our own that is over.
    fn is_over(&self, session: Option<i64>) -> bool {
        session.is_some_and(|session| self.sessions.is_own(session) && self.sessions.alive(session).is_none())
    }
}

/// That there was nothing new to see up to this revision.
struct Quiet {
    revision: i64,
    /// Kept for as long as another's session is minded.
    _ready: Option<Arc<Ready>>,
}

/// So many watchers look at once: ten thousand may begin to watch together, and looking takes room.
const LOOKS: usize = 512;

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl SeatStore for EtcdStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Session,
            takeover: Takeover::Instant,
            push: Push::Proven,
            shared_heartbeat: true,
            attends_by_session: true,
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

    fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let link = self.seats.link().await?;
        Ok(self.seats.read(&link, seat, Reader::Call).await?.reading)
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.seats.swap(seat, expected, next, self.clock()).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, _record: &Record) -> Result<Swap, StoreError> {
        self.seats.renew(seat, held).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let session = seen.seat.as_ref().and_then(|seat| Mark::parse(&seat.version)?.session);
        let watch = self.bells.watch(seat, seen.requests);
        if let Some(session) = session {
            watch.mind(session);
        }
        if !self.is_over(session) {
            // Boxed, as it takes much more room than what comes after it, and there may be many who wait.
            let quiet = Box::pin(self.look_for_news(&watch, seat, seen)).await;
            if let Some(quiet) = quiet {
                watch.told(quiet.revision).await;
            }
        }
        if self.is_over(session) { Change::SessionOver } else { Change::Look }
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.seats.forget(seat).await
    }
}

impl Board for EtcdStore {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        self.boards.put(seat, note).await
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        self.boards.attend(process, lifetime, self.clock()).await
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        self.boards.list(seat, kind).await
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        self.boards.remove(seat, kind, key).await
    }
}
