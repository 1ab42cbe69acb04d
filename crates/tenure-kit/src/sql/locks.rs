//! Seats that the locks of a session hold, for databases that free such locks when the session ends.
//!
//! # Correctness argument
//!
//! *A seat is written on the session that holds it*, if that session belongs to this process: no other session can take
//! its lock. All other seats are written on the session for the lease of the call.
//!
//! *A heartbeat* returns the numbers of the writes whose rows name the session and whose locks the session holds. No two
//! writes have the same number, so a seat is still held in the same term if and only if the number of the write that won
//! it is among them. A heartbeat counts for a seat only if it was sent after the answer to the seat's last write on the
//! session. The server ends a session no sooner than a lease after it has received the heartbeat, so the leader counts
//! its lease from the send.
//!
//! *No lock is left behind.* A statement that takes or releases locks runs to its end in a task of its own, even if the
//! call is dropped. A session keeps the locks that a failed statement has taken. So after a failure the session releases
//! those locks of its seats that no row accounts for. If that fails too, or a statement is not answered within a lease,
//! the session is ended, and with it every lock.
//!
//! *A read shows what a dropped write has done*: it waits until the write has ended, and with it every effect that the write
//! can have, because the session is ended otherwise.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{
    Answers, Clock, Interest, Moment, News, Reading, Record, SeatName, SessionId, StoreError, Swap, Write,
};

use super::VersionParts;
use super::following::{Following, Noticed, WAIT_SLICE};
use super::rows::{RowWrite, WriteKind, WriteSet, Written};
use crate::{Connection, Heartbeat, HeartbeatReply, Liveness, PendingWrites, PooledSession, Session, Sessions, lock};

/// A database whose sessions hold locks, which a store author implements.
///
/// Each session has a random number, which rows name, and holds a lock of that number for as long as it lives.
pub trait LockServer: Sized + Send + Sync + 'static {
    /// A connection to the server, which is a session while it is open.
    type Connection: LockConnection;

    /// Returns the number of a write: the record's nonce, or any other number that no two writes have.
    fn number_of(&self, record: &Record) -> String;

    /// Opens a connection, and takes the lock of this session on it. Once the session holds seats, the server must end
    /// it after a lease of silence, and no sooner.
    fn open(
        &self,
        session: i64,
        lease: Duration,
    ) -> impl Future<Output = Result<Arc<Self::Connection>, StoreError>> + Send;

    /// Returns the numbers of the writes whose rows name the session and whose locks it holds.
    fn heartbeat(&self, session: &LockSession<Self>) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Takes the locks of these seats that the session does not hold, writes the seats whose locks it holds and whose
    /// rows are as expected, and releases the locks that no row accounts for then. The set has no renewals.
    fn write(
        &self,
        session: &LockSession<Self>,
        set: &WriteSet,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Releases those locks of these seats that the session holds and that no row accounts for.
    fn release_leftovers(
        &self,
        session: &LockSession<Self>,
        seats: &[SeatName],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Opens a connection that waits for sessions of other processes.
    fn connect_to_wait(&self) -> impl Future<Output = Result<Arc<Self::Connection>, StoreError>> + Send;

    /// Waits until this session ends, at most for [`WAIT_SLICE`](super::WAIT_SLICE). If the session ended before, returns
    /// at once.
    fn wait(
        &self,
        connection: &Arc<Self::Connection>,
        session: i64,
    ) -> impl Future<Output = Result<Noticed, StoreError>> + Send;
}

/// A connection to a [`LockServer`].
pub trait LockConnection: Connection {
    /// Closes the connection at once. The fate of statements in flight is unknown.
    fn abort(&self);

    /// Returns a duplicate of the socket. If this process is killed, the connection stays open until all duplicates are
    /// closed.
    ///
    /// # Errors
    /// If the system refuses to duplicate it.
    #[cfg(unix)]
    fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline>;
}

/// A session that holds seats of elections with one lease.
pub struct LockSession<L: LockServer> {
    /// A random positive number: the session's name in rows and in locks.
    pub id: i64,
    /// The lease of the seats.
    pub lease: Duration,
    /// The connection of the session.
    pub connection: Arc<L::Connection>,
    server: Arc<L>,
    clock: Clock,
    /// The seats that were won on this session, until they are released, won on another session, or lost a lease ago.
    seats: Mutex<HashMap<SeatName, Won>>,
}

/// The last answered write of a seat.
struct Won {
    number: String,
    at: Moment,
}

impl<L: LockServer> Session for LockSession<L> {
    /// The numbers of the writes whose seats the session held at the heartbeat, sorted.
    type Report = Vec<String>;

    fn name(&self) -> SessionId {
        SessionId::new(self.id.to_string())
    }

    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<Vec<String>>, StoreError> {
        let mut held = self.within_a_lease(self.server.heartbeat(self)).await?;
        held.sort_unstable();
        Ok(HeartbeatReply::Alive(sent, held))
    }

    /// The server ends a session that holds seats and is silent for a lease, which also ends its connection:
    /// [`closed`](Self::closed) reports it. The server never ends a session without seats, so that one needs no
    /// heartbeat.
    fn lapses(&self) -> bool {
        false
    }

    fn is_good(&self) -> bool {
        self.liveness().is_good()
    }

    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.liveness().closed()
    }
}

impl<L: LockServer> LockSession<L> {
    fn liveness(&self) -> &Liveness {
        self.connection.liveness()
    }

    /// Waits for the answer to a statement. If there is none within a lease, ends the session.
    async fn within_a_lease<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.lease, answer).await.unwrap_or_else(|_| {
            self.connection.abort();
            Err(StoreError::unknown("the server has not answered for a lease, so the session was ended"))
        })
    }

    /// `all`: the sessions of this process.
    async fn write(&self, set: &WriteSet, all: &[Pooled<L>], to: &Answers<Swap>) -> Result<(), StoreError> {
        let sent = self.clock.now();
        let written = self.within_a_lease(self.server.write(self, set)).await;
        if written.is_err() {
            self.release_leftovers(&set.seats()).await;
        }
        set.answer(written, to, |write, version| {
            let is_held = !write.record.is_vacant();
            let won = Won { number: version.write.clone(), at: self.clock.now() };
            match is_held {
                true => lock(&self.seats).insert(write.seat.clone(), won),
                false => lock(&self.seats).remove(&write.seat),
            };
            // This session had the lock of the seat, so no other one has it any more.
            for other in all.iter().filter(|other| other.id != self.id) {
                lock(&other.seats).remove(&write.seat);
            }
            let version = VersionParts { session: is_held.then_some(self.id), ..version }.version();
            Swap::Done { version, since: Some(sent), granted: Some(self.lease) }
        })
    }

    async fn release_leftovers(&self, seats: &[SeatName]) {
        if self.within_a_lease(self.server.release_leftovers(self, seats)).await.is_err() {
            self.connection.abort();
        }
    }

    /// Returns whether the heartbeat reports that this session holds a seat since the write that won it.
    fn is_held(&self, beat: &Heartbeat<Vec<String>>, row: &RowWrite) -> bool {
        row.expected.as_ref().is_some_and(|parts| beat.report.binary_search(&parts.write).is_ok())
            && lock(&self.seats).get(&row.write.seat).is_some_and(|won| beat.sent >= won.at)
    }

    /// Removes seats of which the last write was one that is lost.
    fn remove_lost(&self, lost: &[RowWrite]) {
        let mut seats = lock(&self.seats);
        for RowWrite { write, expected, .. } in lost {
            if seats.get(&write.seat).zip(expected.as_ref()).is_some_and(|(won, parts)| won.number == parts.write) {
                seats.remove(&write.seat);
            }
        }
    }
}

/// The seats of a store with `mode=session`: they are held by one session for each length of lease, as a session's
/// time-outs on the server depend on it.
pub struct SeatLocks<L: LockServer> {
    server: Arc<L>,
    pool: Sessions<LockSession<L>>,
    pending: PendingWrites,
    following: Arc<tokio::sync::Mutex<Following<L>>>,
}

type Pooled<L> = Arc<PooledSession<LockSession<L>>>;

/// The writes of a call that go to one session: the one that holds the seats, or that for bids with this lease (`None`).
type Group<L> = (Option<Pooled<L>>, Vec<RowWrite>);

impl<L: LockServer> SeatLocks<L> {
    /// Creates the seats of a store. Opens nothing yet.
    pub fn new(server: Arc<L>) -> Self {
        let opened_by = server.clone();
        let pool = Sessions::new(move |lease, clock| {
            let server = opened_by.clone();
            async move {
                let id = (rand::random::<u64>() >> 1).cast_signed();
                let connection = server.open(id, lease).await?;
                Ok(LockSession { id, lease, connection, server, clock, seats: Mutex::default() })
            }
        });
        Self { server, pool, pending: PendingWrites::default(), following: Arc::default() }
    }

    /// Sets the engine's clock and news. Call it once, before anything else.
    pub fn attach(&self, clock: &Clock, news: &News) {
        self.pool.attach(clock, news);
    }

    /// Returns the session for seats of this lease, and opens it if necessary.
    ///
    /// # Errors
    /// The reason why no session could be opened.
    pub async fn session(&self, lease: Duration) -> Result<Pooled<L>, StoreError> {
        let opened_before = self.pool.live();
        let session = self.pool.get(lease).await?;
        // A session that was replaced, because it did not answer, and that has no seats is of no use. It would stay open.
        let is_replaced = |other: &&Pooled<L>| other.lease == lease && other.id != session.id;
        for other in opened_before.iter().filter(is_replaced).filter(|other| lock(&other.seats).is_empty()) {
            other.connection.abort();
        }
        Ok(session)
    }

    /// Reads seats with `read`, each after the writes to it that are in flight.
    ///
    /// # Errors
    /// The first error of `read`. It concerns the seats that have no answer.
    pub async fn read<F: Future<Output = Result<(), StoreError>>>(
        &self,
        seats: &[SeatName],
        to: &Answers<Reading>,
        read: impl Fn(Vec<SeatName>, Answers<Reading>) -> F,
    ) -> Result<(), StoreError> {
        self.pending.read(seats, to, read).await
    }

    /// Writes each seat on the session that holds it, or else on the session for this lease.
    ///
    /// # Errors
    /// Returns an error if the seats without an answer were not written.
    pub async fn write(&self, lease: Duration, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let mut groups: BTreeMap<(Option<i64>, WriteKind), Group<L>> = BTreeMap::new();
        let number_of = |record: &Record| self.server.number_of(record);
        for WriteSet { kind, rows } in WriteSet::split(writes.iter().enumerate(), number_of, to) {
            for row in rows {
                // The session of a dead process ends with its connection, so its will needs no exception.
                let holder = row.expected.as_ref().and_then(|parts| self.pool.find(&parts.session?.to_string()));
                if holder.is_none() && kind == WriteKind::Renewal {
                    to.set(row.place, Ok(Swap::Lost));
                    continue;
                }
                let key = (holder.as_ref().map(|session| session.id), kind);
                groups.entry(key).or_insert_with(|| (holder, Vec::new())).1.push(row);
            }
        }
        let answers = groups.into_iter().map(async |((_, kind), (session, rows))| {
            let session = match session {
                Some(session) => session,
                None => self.session(lease).await?,
            };
            let set = WriteSet { kind, rows };
            if kind == WriteKind::Renewal {
                renew(&session, set, to).await;
                return Ok(());
            }
            let to = to.clone();
            let all = self.pool.live();
            self.pending.run(set.seats(), async move { session.write(&set, &all, &to).await }).await
        });
        join_all(answers).await.into_iter().fold(Ok(()), Result::and)
    }

    /// Waits for the sessions of other processes that lead seats which the engine is interested in, and keeps sessions
    /// open for bids on these seats. `pushed` is the connection on which changes are pushed, if the server pushes them:
    /// then a wait that fails is only repeated later. Otherwise this returns the error, and the engine starts another
    /// watch after a pause.
    pub async fn follow(&self, interest: &Interest, news: &News, pushed: Option<&Liveness>) -> StoreError {
        let mut following = self.following.lock().await;
        let _clear_later = ClearLater(Arc::downgrade(&self.following));
        following.follow(&self.server, &self.pool, interest, news, pushed).await
    }

    /// Returns a duplicate of the socket of the session that holds a seat.
    ///
    /// It stays valid for the whole term: the session that won a seat holds it until the term ends, and the end of the
    /// session ends the term.
    ///
    /// # Errors
    /// If the system refuses to duplicate it.
    #[cfg(unix)]
    pub fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        let holder = self.pool.live().into_iter().find(|session| lock(&session.seats).contains_key(seat));
        holder.map(|session| session.connection.lifeline()).transpose()
    }
}

/// When a watch ends, closes the connections that it has waited on, unless another watch goes on with them within a slice.
struct ClearLater<L: LockServer>(Weak<tokio::sync::Mutex<Following<L>>>);

impl<L: LockServer> Drop for ClearLater<L> {
    fn drop(&mut self) {
        let following = self.0.clone();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            tokio::time::sleep(WAIT_SLICE).await;
            // A watch holds the lock until it ends.
            if let Some(following) = following.upgrade()
                && let Ok(mut following) = following.try_lock()
            {
                *following = Following::default();
            }
        });
    }
}

/// Renews seats by the heartbeat that all seats of the session share.
///
/// A heartbeat that was sent within the last quarter of a lease is used again if it reports all of these seats. Otherwise
/// a new heartbeat is sent, and decides.
async fn renew<L: LockServer>(session: &Pooled<L>, set: WriteSet, to: &Answers<Swap>) {
    let oldest = session.clock.now() - session.lease / 4;
    let suits =
        |beat: &Heartbeat<Vec<String>>| beat.sent >= oldest && set.rows.iter().all(|row| session.is_held(beat, row));
    let beat = match session.beat(suits).await {
        Ok(beat) => beat,
        Err(error) => return set.rows.iter().for_each(|row| to.set(row.place, Err(error.clone()))),
    };
    let (held, lost): (Vec<_>, Vec<_>) = set.rows.into_iter().partition(|row| session.is_held(&beat, row));
    for (place, version) in held.iter().filter_map(|row| Some((row.place, row.write.expect.version()?.clone()))) {
        to.set(place, Ok(Swap::Done { version, since: Some(beat.sent), granted: Some(session.lease) }));
    }
    lost.iter().for_each(|row| to.set(row.place, Ok(Swap::Lost)));
    if !lost.is_empty() {
        release_later(session, lost);
    }
}

/// Releases the locks of lost seats after a lease. A seat is lost here if its row was removed or changed by hand, or its
/// lock was released. A lock that is left protects the work of its leader, which must have ended a lease from now.
fn release_later<L: LockServer>(session: &Pooled<L>, lost: Vec<RowWrite>) {
    let (session, lease) = (Arc::downgrade(session), session.lease);
    tokio::spawn(async move {
        tokio::time::sleep(lease).await;
        if let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
            let seats: Vec<_> = lost.iter().map(|row| row.write.seat.clone()).collect();
            session.release_leftovers(&seats).await;
            session.remove_lost(&lost);
        }
    });
}

impl<L: LockServer> std::fmt::Debug for SeatLocks<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeatLocks").field("sessions", &self.pool).finish_non_exhaustive()
    }
}

impl<L: LockServer> std::fmt::Debug for LockSession<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockSession").field("id", &self.id).field("lease", &self.lease).finish_non_exhaustive()
    }
}
